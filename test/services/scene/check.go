// SPDX-License-Identifier: Apache-2.0

package scene

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// EndpointLines describe the endpoints of one Service in its slices, one line each, sorted.
func EndpointLines(slicesOf []discoveryv1.EndpointSlice, service string) []string {
	var lines []string
	for i := range slicesOf {
		s := &slicesOf[i]
		if s.Labels[discoveryv1.LabelServiceName] != service || s.Labels[discoveryv1.LabelManagedBy] != svcwatcher.ManagedBy {
			continue
		}
		for _, e := range s.Endpoints {
			lines = append(lines, line(s.Ports, e))
		}
	}
	slices.Sort(lines)
	return lines
}

// line is such as "10.0.0.1 web:8080/TCP ready,serving pod-1".
func line(ports []discoveryv1.EndpointPort, e discoveryv1.Endpoint) string {
	words := []string{strings.Join(e.Addresses, ",")}
	for _, p := range ports {
		words = append(words, fmt.Sprintf("%s:%d/%s", *p.Name, *p.Port, *p.Protocol))
	}
	var states []string
	for _, state := range []struct {
		name string
		on   *bool
	}{{"ready", e.Conditions.Ready}, {"serving", e.Conditions.Serving}, {"terminating", e.Conditions.Terminating}} {
		if *state.on {
			states = append(states, state.name)
		}
	}
	pod := "nobody"
	if e.TargetRef != nil {
		pod = e.TargetRef.Name
	}
	return strings.Join(append(words, strings.Join(states, ","), pod), " ")
}

// Check compares all Services of a namespace, on these networks, with what should be
// theirs by the Pods and DanmEps that are stored, and returns the first difference.
func Check(ctx context.Context, c client.Client, namespace string, nets ...*v1.ClusterNetwork) error {
	var (
		services corev1.ServiceList
		pods     corev1.PodList
		eps      v1.DanmEpList
		there    discoveryv1.EndpointSliceList
	)
	if err := errors.Join(
		listPages(ctx, c, namespace, func(page *corev1.ServiceList) { services.Items = append(services.Items, page.Items...) }),
		listPages(ctx, c, namespace, func(page *corev1.PodList) { pods.Items = append(pods.Items, page.Items...) }),
		listPages(ctx, c, namespace, func(page *v1.DanmEpList) { eps.Items = append(eps.Items, page.Items...) }),
		listPages(ctx, c, namespace, func(page *discoveryv1.EndpointSliceList) { there.Items = append(there.Items, page.Items...) }),
	); err != nil {
		return err
	}
	known := map[network.Ref]*network.Network{}
	for _, n := range nets {
		model, err := network.FromClusterNetwork(n)
		if err != nil {
			return err
		}
		known[model.Ref] = model
	}
	byApp, epsOf, slicesOf := map[string][]corev1.Pod{}, map[string][]v1.DanmEp{}, map[string][]discoveryv1.EndpointSlice{}
	for _, p := range pods.Items {
		byApp[p.Labels["app"]] = append(byApp[p.Labels["app"]], p)
	}
	for _, ep := range eps.Items {
		epsOf[ep.Spec.Pod] = append(epsOf[ep.Spec.Pod], ep)
	}
	for _, s := range there.Items {
		name := s.Labels[discoveryv1.LabelServiceName]
		slicesOf[name] = append(slicesOf[name], s)
	}
	for i := range services.Items {
		svc := &services.Items[i]
		j := svcwatcher.Classify(svc)
		if j.Class != svcwatcher.Managed {
			continue
		}
		source := &svcwatcher.Snapshot{Service: svc, Request: j.Request, Networks: known, Zone: func(string) string { return "" }}
		source.Pods = byApp[j.Request.Selector["app"]]
		for _, p := range source.Pods {
			source.DanmEps = append(source.DanmEps, epsOf[p.Name]...)
		}
		if err := compareSlices(svc.Name, svcwatcher.Desired(source).Groups, slicesOf[svc.Name]); err != nil {
			return err
		}
	}
	return nil
}

// listPages lists everything in pieces that no server on a busy machine gives up on.
func listPages[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, c client.Client, namespace string, each func(L)) error {
	for next := ""; ; {
		page := L(new(T))
		if err := c.List(ctx, page, client.InNamespace(namespace), client.Limit(500), client.Continue(next)); err != nil {
			return fmt.Errorf("list %T: %w", page, err)
		}
		each(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

func compareSlices(service string, groups []svcwatcher.Group, there []discoveryv1.EndpointSlice) error {
	var want []string
	for _, g := range groups {
		for _, e := range g.Endpoints {
			want = append(want, line(g.Ports, e))
		}
	}
	slices.Sort(want)
	if got := EndpointLines(there, service); !slices.Equal(got, want) {
		return fmt.Errorf("Service %s has %d endpoints, want %d:\n%s\nwant\n%s", service, len(got), len(want),
			strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return nil
}
