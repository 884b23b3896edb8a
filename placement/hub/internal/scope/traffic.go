// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	danm "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// TrafficIndex finds the Works of Services by the names of the Works whose Pods are their endpoints.
const TrafficIndex = "spec.traffic"

// Traffic is what the endpoints of a Service on a ClusterNetwork depend on.
type Traffic struct {
	// Network is the name of the ClusterNetwork.
	Network string
	// Networks has it as each cluster has it that states that it is stretched, and allows the Service's namespace.
	Networks map[string]*network.Network
	// Withdrawn are the workloads whose Pods are about to leave a cluster.
	Withdrawn []v1alpha1.WithdrawnTraffic
}

// TrafficIndexKeys returns the names of the Works that a Work of a Service has endpoints of.
func TrafficIndexKeys(w *v1alpha1.Work) []string {
	names := map[string]bool{}
	if t := w.Spec.Traffic; t != nil {
		for i := range t.Endpoints {
			names[t.Endpoints[i].Work] = true
		}
		for i := range t.Withdrawn {
			names[t.Withdrawn[i].Work] = true
		}
	}
	if t := w.Status.Traffic; t != nil {
		for i := range t.Endpoints {
			names[t.Endpoints[i].Work] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// ServiceNetwork returns the name of the ClusterNetwork of a Service; "" for none.
func ServiceNetwork(service client.Object) string {
	request, err := network.ParseService(service.GetNamespace(), service.GetAnnotations(), false)
	if err != nil || request == nil {
		return ""
	}
	for _, ref := range request.Networks {
		if ref.Kind == danm.KindClusterNetwork {
			return ref.Name
		}
	}
	return ""
}

// ClusterNetworkKey returns the key of a ClusterNetwork.
func ClusterNetworkKey(name string) kinds.Key {
	return kinds.Key{GroupKind: schema.GroupKind{Group: danm.GroupName, Kind: danm.KindClusterNetwork}, Name: name}
}

// readTraffic reads what the endpoints of a Service depend on, and the Services that have endpoints of the object's
// Pods.
func (r *Reader) readTraffic(ctx context.Context, s *Scope) error {
	if s.Object != nil && s.Key.GroupKind == (schema.GroupKind{Kind: "Service"}) {
		if name := ServiceNetwork(s.Object); name != "" {
			return r.readServiceTraffic(ctx, s, name)
		}
	}
	return r.readServing(ctx, s)
}

func (r *Reader) readServiceTraffic(ctx context.Context, s *Scope, name string) error {
	t := &Traffic{Network: name, Networks: map[string]*network.Network{}}
	works, err := worksNamed(ctx, r.cached, ClusterNetworkKey(name).RecordName())
	if err != nil {
		return err
	}
	for cluster, w := range works {
		if n := stretchedNetwork(w); n != nil && n.Allows(s.Key.Namespace) {
			t.Networks[cluster] = n
		}
	}
	workloads := map[string]bool{}
	for _, w := range s.Works {
		for _, workload := range TrafficIndexKeys(w) {
			workloads[workload] = true
		}
	}
	for _, workload := range slices.Sorted(maps.Keys(workloads)) {
		a := &v1alpha1.Assignment{}
		err := r.cached.Get(ctx, client.ObjectKey{Namespace: s.Key.Namespace, Name: workload}, a, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read Assignment %s/%s: %w", s.Key.Namespace, workload, err)
		}
		for _, target := range a.Spec.Targets {
			if target.TrafficWithdrawnTime != nil {
				t.Withdrawn = append(t.Withdrawn, v1alpha1.WithdrawnTraffic{Cluster: target.Cluster, Work: workload, Time: *target.TrafficWithdrawnTime})
			}
		}
	}
	s.Traffic = t
	return nil
}

// stretchedNetwork returns the ClusterNetwork of a Work; nil unless the cluster has it, and it has the annotation that
// it is stretched. A cluster that is to remove it has it as long as Pods are attached.
func stretchedNetwork(w *v1alpha1.Work) *network.Network {
	if len(w.Status.Manifests) == 0 || w.Status.Manifests[0].UID == "" {
		return nil
	}
	o, err := ManifestOf(w)
	if err != nil || o == nil || o.GetAnnotations()[v1alpha1.StretchedAnnotation] != "true" {
		return nil
	}
	typed := &danm.ClusterNetwork{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed) != nil {
		return nil
	}
	n, err := network.FromClusterNetwork(typed)
	if err != nil {
		return nil
	}
	return n
}

// readServing reads the Works of the Services that have endpoints of the object's Pods, by name and cluster.
func (r *Reader) readServing(ctx context.Context, s *Scope) error {
	var list v1alpha1.WorkList
	if err := r.cached.List(ctx, &list, client.MatchingFields{TrafficIndex: s.Key.RecordName()}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Works with endpoints of %s: %w", s.Key, err)
	}
	for i := range list.Items {
		name := list.Items[i].Name
		if s.Serving[name] != nil {
			continue
		}
		works, err := worksNamed(ctx, r.cached, name)
		if err != nil {
			return err
		}
		if s.Serving == nil {
			s.Serving = map[string]map[string]*v1alpha1.Work{}
		}
		s.Serving[name] = works
	}
	return nil
}
