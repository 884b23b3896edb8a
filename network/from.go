// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// From is FromClusterNetwork, FromTenantNetwork or FromDanmNet, by obj's type.
func From(obj metav1.Object) (*Network, error) {
	switch o := obj.(type) {
	case *v1.ClusterNetwork:
		return FromClusterNetwork(o)
	case *v1.TenantNetwork:
		return FromTenantNetwork(o)
	case *v1.DanmNet:
		return FromDanmNet(o)
	}
	return nil, fmt.Errorf("read network from %T: %w: want a ClusterNetwork, TenantNetwork or DanmNet", obj, ErrInvalid)
}

// FromClusterNetwork checks every rule that the object alone decides and returns
// the model, or an *InvalidError with all faults.
func FromClusterNetwork(o *v1.ClusterNetwork) (*Network, error) {
	return fromSpec(v1.KindClusterNetwork, &o.ObjectMeta, &o.Spec)
}

// FromTenantNetwork is FromClusterNetwork for a TenantNetwork.
func FromTenantNetwork(o *v1.TenantNetwork) (*Network, error) {
	return fromSpec(v1.KindTenantNetwork, &o.ObjectMeta, &o.Spec)
}

// FromDanmNet is FromClusterNetwork for a DanmNet.
func FromDanmNet(o *v1.DanmNet) (*Network, error) {
	return fromSpec(v1.KindDanmNet, &o.ObjectMeta, &o.Spec)
}

func fromSpec(kind string, meta *metav1.ObjectMeta, spec *v1.NetworkSpec) (*Network, error) {
	n := &Network{
		Ref:            Ref{Kind: kind, Namespace: meta.Namespace, Name: meta.Name},
		UID:            string(meta.UID),
		Generation:     meta.Generation,
		Created:        meta.CreationTimestamp.Time,
		Deleting:       meta.DeletionTimestamp != nil,
		ID:             spec.NetworkID,
		Type:           backendType(spec.NetworkType),
		AllowedTenants: slices.Clone(spec.AllowedTenants),
	}
	if kind == v1.KindTenantNetwork {
		n.Assignment = meta.Annotations[v1.AssignedAnnotation]
	}
	var f faults
	path := field.NewPath("spec")
	checkNames(&f, path, spec)
	checkTenants(&f, path.Child("AllowedTenants"), kind, spec.AllowedTenants)
	readOptions(&f, path, spec, n)
	if err := f.err(n.Ref.String()); err != nil {
		return nil, err
	}
	return n, nil
}

// backendType returns our own backends in lower case, others as written.
func backendType(written string) string {
	switch lower := strings.ToLower(written); lower {
	case "":
		return v1.TypeIPVLAN
	case v1.TypeIPVLAN, v1.TypeMACVLAN, v1.TypeSRIOV:
		return lower
	}
	return written
}

// TypeOf returns the type of a spec as Network.Type has it; the spec need not be
// valid.
func TypeOf(s *v1.NetworkSpec) string { return backendType(s.NetworkType) }
