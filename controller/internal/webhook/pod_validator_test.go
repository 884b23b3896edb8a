// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// eventCounter counts Events.
type eventCounter int

// Event implements EventRecorder.
func (c *eventCounter) Event(runtime.Object, string, string, string) { *c++ }

// A tenant chooses the owner of a Pod freely, and the Event is on that owner.
func TestEventOwners(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, apiVersion, kind, annotation string
		want                                 int
	}{
		"ReplicaSet": {"Its user sees no warning.", "apps/v1", "ReplicaSet", "danm.io/interface", 1},
		"Job":        {"Its user sees no warning.", "batch/v1", "Job", "danm.io/interface", 1},
		"Node":       {"A static Pod's owner, and any Pod's that names it, is not the tenant's object.", "v1", "Node", "danm.io/interface", 0},
		"Multus":     {"The annotation is right for the other plugin.", "apps/v1", "ReplicaSet", "k8s.v1.cni.cncf.io/networks", 0},
		"Other":      {"A kind that creates no Pods.", "rbac.authorization.k8s.io/v1", "Role", "danm.io/interface", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var events eventCounter
			h := &podValidator{checker: noNetworks(), events: &events, limiter: newEventLimiter()}
			if r := h.Handle(t.Context(), podRequest(t, "ns", tc.apiVersion, tc.kind, "uid", tc.annotation, "[]")); !r.Allowed || len(r.Warnings) == 0 {
				t.Fatalf("%s\ngot %v with warnings %q, want it allowed with one", tc.reason, r.Result, r.Warnings)
			}
			if int(events) != tc.want {
				t.Errorf("%s\ngot %d Events, want %d", tc.reason, events, tc.want)
			}
		})
	}
}

// Each Pod may name an owner that does not exist, and each such Event would be a new object.
func TestEventsAreLimited(t *testing.T) {
	t.Parallel()
	var events eventCounter
	h := &podValidator{checker: noNetworks(), events: &events, limiter: newEventLimiter()}
	for i := range 10 * eventBurst {
		h.Handle(t.Context(), podRequest(t, "ns", "apps/v1", "ReplicaSet", fmt.Sprintf("uid-%d", i), "danm.io/interface", "[]"))
	}
	if events < eventBurst || events > eventBurst+1 {
		t.Errorf("got %d Events, want %d", events, eventBurst)
	}
}

func TestEventLimiter(t *testing.T) {
	t.Parallel()
	l, now := newEventLimiter(), time.Now()
	for range eventBurst {
		if !l.allow("ns", now) {
			t.Fatal("an Event of the burst is refused")
		}
	}
	if l.allow("ns", now) {
		t.Error("an Event after the burst is allowed")
	}
	if !l.allow("ns", now.Add(eventInterval)) {
		t.Error("an Event after the interval is refused")
	}
}

// A file may have a network and the Pods that use it, and the cache is behind the API server.
func TestNetworkAppearsInCache(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, kind string
		after        time.Duration
		warned       bool
		takes        time.Duration
	}{
		"Cached": {reason: "The cache has the network.", takes: 0},
		"Behind": {reason: "The cache gets the network a moment later.", after: 3 * cacheInterval, takes: 3 * cacheInterval},
		"Late":   {reason: "The network was not created just before the Pod, and podMutator has waited for it.", after: time.Hour, takes: replicaDelay, warned: true},
		"Owned":  {reason: "The template has waited.", kind: "ReplicaSet", after: time.Hour, warned: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start, found := time.Now(), &network.Network{ID: "backend"}
				h := &podValidator{checker: network.PodChecker{NetworkOf: func(network.Ref) *network.Network {
					if time.Since(start) < tc.after {
						return nil
					}
					return found
				}}}
				r := podRequest(t, "ns", "apps/v1", tc.kind, "uid", v1.InterfacesAnnotation, `[{"clusterNetwork": "backend"}]`)
				got := h.Handle(t.Context(), r)
				if !got.Allowed || (len(got.Warnings) > 0) != tc.warned {
					t.Errorf("%s\ngot %v with warnings %q, want a warning: %t", tc.reason, got.Result, got.Warnings, tc.warned)
				}
				if took := time.Since(start); took != tc.takes {
					t.Errorf("%s\nit took %s, want %s", tc.reason, took, tc.takes)
				}
			})
		})
	}
}

// A Service from before a rule still gets its other changes.
func TestServiceOlderThanTheRules(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, selector string
		allowed          bool
	}{
		"Other":  {reason: "Patchbay's annotations stay.", selector: `{"app": "web"}`, allowed: true},
		"Change": {reason: "One of Patchbay's annotations changes.", selector: `{"app": "db"}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := func(selector, label string) runtime.RawExtension {
				raw, err := json.Marshal(&corev1.Service{ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns", Name: "web", Labels: map[string]string{"label": label},
					Annotations: map[string]string{"danm.io/selector": selector, "danm.io/network": "blue", "danm.k8s.io/network": "red"},
				}})
				if err != nil {
					t.Fatal(err)
				}
				return runtime.RawExtension{Raw: raw}
			}
			got := serviceValidator{}.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Update, Namespace: "ns", Name: "web",
				Object: service(tc.selector, "new"), OldObject: service(`{"app": "web"}`, "old"),
			}})
			if got.Allowed != tc.allowed {
				t.Errorf("%s\ngot %v, want it allowed: %t", tc.reason, got.Result, tc.allowed)
			}
		})
	}
}

// A user whose Service has a key that is not read sees a warning.
func TestUnknownServiceAnnotation(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, key, want string }{
		"Typo":  {"The key is misspelt.", "danm.io/clusternetworks", "did you mean danm.io/clusterNetwork?"},
		"Known": {"Another controller of Patchbay reads the key.", "danm.io/endpoints", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := json.Marshal(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", Annotations: map[string]string{tc.key: "true"}}})
			if err != nil {
				t.Fatal(err)
			}
			got := serviceValidator{}.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Namespace: "ns", Name: "web", Object: runtime.RawExtension{Raw: raw},
			}})
			if warnings := strings.Join(got.Warnings, "\n"); !got.Allowed || (warnings == "") != (tc.want == "") || !strings.Contains(warnings, tc.want) {
				t.Errorf("%s\ngot %v with warnings %q, want %q", tc.reason, got.Result, warnings, tc.want)
			}
		})
	}
}

// podRequest returns the request for a new Pod with an annotation and, unless kind is empty, a controller.
func podRequest(t *testing.T, namespace, apiVersion, kind, uid, annotation, value string) admission.Request {
	t.Helper()
	isController := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-0", Annotations: map[string]string{annotation: value}}}
	if kind != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", UID: types.UID(uid), Controller: &isController}}
	}
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: namespace, Name: "web-0", Object: runtime.RawExtension{Raw: raw},
	}}
}
