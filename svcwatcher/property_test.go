// SPDX-License-Identifier: Apache-2.0

package svcwatcher_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// world is a cluster whose objects change at random.
type world struct {
	svc      *corev1.Service
	networks map[network.Ref]*network.Network
	pods     map[int]corev1.Pod
	eps      map[string]v1.DanmEp // also those that former Pods left behind
	births   int
	slices   []discoveryv1.EndpointSlice
	version  int
}

func newWorld() *world {
	return &world{
		svc: service(), pods: map[int]corev1.Pod{}, eps: map[string]v1.DanmEp{},
		networks: networks(net(network.Ref{Kind: v1.KindClusterNetwork, Name: "red"}, "red-uid")),
	}
}

func (w *world) source() *svcwatcher.Snapshot {
	s := &svcwatcher.Snapshot{Service: w.svc, Request: svcwatcher.Classify(w.svc).Request, Networks: w.networks, Zone: func(string) string { return "" }}
	for _, p := range w.pods { // in any order
		s.Pods = append(s.Pods, p)
	}
	for _, e := range w.eps {
		s.DanmEps = append(s.DanmEps, e)
	}
	return s
}

// born creates a Pod with an interface. The DanmEp of an earlier Pod of its name stays.
func (w *world) born(i int) {
	w.births++
	p := pod(fmt.Sprintf("p%d", i), func(p *corev1.Pod) { p.UID = types.UID(fmt.Sprintf("uid-%d", w.births)) })
	if i%3 == 0 {
		ports(corev1.ContainerPort{Name: "web", ContainerPort: 9090})(&p)
	}
	w.pods[i] = p
	e := ep(p.Name, fmt.Sprintf("10.0.%d.%d/8", w.births/250, w.births%250+1), fmt.Sprintf("fd00::%x/64", w.births))
	e.Name, e.Spec.PodUID = fmt.Sprintf("ep-%d", w.births), string(p.UID)
	w.eps[e.Name] = e
}

// happen changes a few Pods, or the Service.
func (w *world) happen(t *rapid.T) {
	from := rapid.IntRange(0, 250).Draw(t, "from")
	to := from + rapid.SampledFrom([]int{1, 1, 1, 5, 120}).Draw(t, "many")
	each := func(change func(i int, p corev1.Pod)) {
		for i := from; i < to; i++ {
			if p, ok := w.pods[i]; ok {
				change(i, *p.DeepCopy())
			}
		}
	}
	switch rapid.SampledFrom([]string{"born", "born", "born", "dies", "flaps", "ends", "moves", "forgets", "ports", "families", "labels", "network"}).Draw(t, "event") {
	case "born":
		for i := from; i < to; i++ {
			w.born(i)
		}
	case "dies":
		each(func(i int, _ corev1.Pod) { delete(w.pods, i) })
	case "flaps":
		each(func(i int, p corev1.Pod) {
			p.Status.Conditions[0].Status = map[corev1.ConditionStatus]corev1.ConditionStatus{corev1.ConditionTrue: corev1.ConditionFalse, corev1.ConditionFalse: corev1.ConditionTrue}[p.Status.Conditions[0].Status]
			w.pods[i] = p
		})
	case "ends":
		each(func(i int, p corev1.Pod) { terminating(&p); w.pods[i] = p })
	case "moves":
		label := rapid.SampledFrom([]string{"web", "other"}).Draw(t, "label")
		each(func(i int, p corev1.Pod) { p.Labels["app"] = label; w.pods[i] = p })
	case "forgets": // the daemon cleans up
		alive := map[string]bool{}
		for _, p := range w.pods {
			alive[string(p.UID)] = true
		}
		for name, e := range w.eps {
			if !alive[e.Spec.PodUID] {
				delete(w.eps, name)
			}
		}
	case "ports":
		target := rapid.SampledFrom([]intstr.IntOrString{intstr.FromInt32(8080), intstr.FromString("web")}).Draw(t, "target")
		w.svc = w.svc.DeepCopy()
		asks(corev1.ServicePort{Name: "http", Port: 80, TargetPort: target})(w.svc)
	case "families":
		all := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
		w.svc = w.svc.DeepCopy()
		w.svc.Spec.IPFamilies = all[:rapid.IntRange(1, 2).Draw(t, "families")]
	case "labels":
		w.svc = w.svc.DeepCopy()
		w.svc.Labels = map[string]string{"team": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "team")}
	case "network":
		uid := rapid.SampledFrom([]string{"red-uid", "red-uid", "new"}).Draw(t, "network")
		w.networks = networks(net(network.Ref{Kind: v1.KindClusterNetwork, Name: "red"}, uid))
	}
}

// reconcile reconciles the Service as the controller does, and checks the writes.
func (w *world) reconcile(t *rapid.T) {
	changes := svcwatcher.Plan(w.svc, svcwatcher.Desired(w.source()).Groups, w.slices)
	w.slices = apply(t, w.slices, changes, &w.version)
	if again := svcwatcher.Plan(w.svc, svcwatcher.Desired(w.source()).Groups, w.slices); !again.Empty() {
		t.Fatalf("a second reconciliation writes again: %d, %d, %d", len(again.Create), len(again.Update), len(again.Delete))
	}
	seen := map[string]bool{}
	for _, s := range w.slices {
		if n := len(s.Endpoints); n == 0 || n > 100 {
			t.Fatalf("slice %s has %d endpoints", s.Name, n)
		}
		for _, e := range s.Endpoints {
			if seen[e.Addresses[0]] {
				t.Fatalf("%s is there twice", e.Addresses[0])
			}
			seen[e.Addresses[0]] = true
		}
	}
}

type failer interface {
	Fatalf(format string, args ...any)
}

// apply writes the changes as an API server does, which rejects stale ones.
func apply(t failer, there []discoveryv1.EndpointSlice, c svcwatcher.Changes, version *int) []discoveryv1.EndpointSlice {
	all := map[string]discoveryv1.EndpointSlice{}
	for _, s := range there {
		all[s.Name] = s
	}
	store := func(s discoveryv1.EndpointSlice) {
		*version++
		s.ResourceVersion = fmt.Sprint(*version)
		all[s.Name] = *s.DeepCopy()
	}
	for _, s := range c.Create {
		if _, ok := all[s.Name]; ok || s.ResourceVersion != "" {
			t.Fatalf("create %s: it exists, or has version %q", s.Name, s.ResourceVersion)
		}
		store(s)
	}
	for _, s := range c.Update {
		old := all[s.Name]
		if old.ResourceVersion != s.ResourceVersion || old.AddressType != s.AddressType {
			t.Fatalf("update %s from version %q: it is %q; family %s: it is %s", s.Name, s.ResourceVersion, old.ResourceVersion, s.AddressType, old.AddressType)
		}
		store(s)
	}
	for _, s := range c.Delete {
		delete(all, s.Name)
	}
	return slices.Collect(maps.Values(all))
}

// content returns the endpoints of all slices, in whatever slice they are.
func content(all []discoveryv1.EndpointSlice) map[string]string {
	byAddress := map[string]string{}
	for _, s := range all {
		for _, e := range s.Endpoints {
			p := []string{}
			for _, port := range s.Ports {
				p = append(p, fmt.Sprint(*port.Name, *port.Port, *port.Protocol))
			}
			byAddress[e.Addresses[0]] = fmt.Sprint(s.AddressType, p, s.Labels, *e.Conditions.Ready, *e.Conditions.Serving, *e.Conditions.Terminating, *e.TargetRef)
		}
	}
	return byAddress
}

// After any events in any order, and any number of them between two reconciliations, the slices
// equal those of a controller that starts from nothing.
func TestAnyOrderIsARebuild(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for range rapid.IntRange(1, 15).Draw(t, "events") {
			w.happen(t)
			if rapid.Bool().Draw(t, "reconcile") {
				w.reconcile(t)
			}
		}
		w.reconcile(t)
		version := 0
		rebuilt := apply(t, nil, svcwatcher.Plan(w.svc, svcwatcher.Desired(w.source()).Groups, nil), &version)
		if diff := cmp.Diff(content(rebuilt), content(w.slices)); diff != "" {
			t.Fatalf("endpoints: -rebuilt +grown\n%s", diff)
		}
	})
}

// A change of one Pod is one write, with any number of endpoints.
func TestOneChangeIsOneWrite(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.svc.Spec.IPFamilies = w.svc.Spec.IPFamilies[:1]
		n := rapid.IntRange(2, 250).Draw(t, "Pods")
		for i := range n {
			w.born(i)
		}
		w.reconcile(t)
		i := rapid.IntRange(0, n-1).Draw(t, "which")
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			p := w.pods[i]
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
			w.pods[i] = p
		case 1:
			delete(w.pods, i)
		case 2:
			w.born(i) // one goes, another comes
		}
		c := svcwatcher.Plan(w.svc, svcwatcher.Desired(w.source()).Groups, w.slices)
		if got := len(c.Create) + len(c.Update) + len(c.Delete); got != 1 {
			t.Fatalf("writes: got %d, want 1", got)
		}
	})
}
