// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// lookup reads what the Pod asks for, and the networks of it.
func (s *Service) lookup(ctx context.Context, pod *corev1.Pod) ([]want, error) {
	requests, err := network.ParseInterfaces(pod.Annotations)
	if err != nil {
		return nil, refuse(ReasonInterfaces, err)
	}
	if len(requests) == 0 {
		w, err := s.lookupDefault(ctx, pod.Namespace)
		return []want{w}, err
	}
	asked := make([]want, len(requests))
	for i, r := range requests {
		n, err := s.Cluster.Network(ctx, r.Ref(pod.Namespace))
		if err != nil {
			return nil, refuse(ReasonNetwork, fmt.Errorf("interface %d, network %s: %w", i, r.Ref(pod.Namespace), err))
		}
		asked[i] = want{request: r, network: n}
	}
	return asked, nil
}

// lookupDefault finds the network of a Pod that names none. One that exists and
// is invalid is an error: the next would be another network than its owner means.
func (s *Service) lookupDefault(ctx context.Context, namespace string) (want, error) {
	for _, ref := range network.DefaultRefs(namespace) {
		n, err := s.Cluster.Network(ctx, ref)
		switch {
		case err == nil:
			return want{request: network.DefaultRequest(n), network: n}, nil
		case !errors.Is(err, ErrNotFound):
			return want{}, refuse(ReasonNetwork, fmt.Errorf("default network %s: %w", ref, err))
		}
	}
	return want{}, refusef(ReasonNetwork,
		"default network: %w: the Pod has no annotation %s, and there is no DanmNet or TenantNetwork %q in namespace %q and no ClusterNetwork %q: make one of them",
		ErrNotFound, v1.InterfacesAnnotation, v1.DefaultNetworkName, namespace, v1.DefaultNetworkName)
}

// check reports what keeps an interface from its parent link, before anything is
// claimed: a Pod that can never start would take other addresses with each try, as those
// that it gives back rest for a while.
func (s *Service) check(ctx context.Context, rec *Record) error {
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if !ifc.onParent() {
			continue
		}
		if err := s.HostLinks.Check(ctx, &ifc.Network); err != nil {
			return refuse(ReasonAttach, fmt.Errorf("attach %s to network %s: %w", ifc.Name, ifc.Network.Ref, err))
		}
	}
	return nil
}

// prepare lets backends complete their interfaces before anything is claimed.
func (s *Service) prepare(ctx context.Context, req *Request, rec *Record) error {
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		b, err := s.backend(&ifc.Network)
		if p, ok := b.(Preparer); ok && err == nil {
			err = p.Prepare(ctx, req, ifc)
		}
		if err != nil {
			return refuse(ReasonNetwork, fmt.Errorf("interface %d (%s), network %s: %w", i, ifc.Name, ifc.Network.Ref, err))
		}
	}
	return nil
}
