// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

func TestFinalizerRecentlyAdded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	entry := func(fields string, age time.Duration) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(now.Add(-age))
		return metav1.ManagedFieldsEntry{Manager: "patchbayd", Time: &at, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const ours, others = `{"f:metadata":{"f:finalizers":{".":{},"v:\"danm.io/in-use\"":{}}}}`, `{"f:metadata":{"f:labels":{"f:a":{}}}}`
	cases := map[string]struct {
		reason string
		fields []metav1.ManagedFieldsEntry
		want   bool
	}{
		"Now":      {"The DELETE may have begun before the finalizer was set.", []metav1.ManagedFieldsEntry{entry(others, time.Hour), entry(ours, time.Second)}, true},
		"Ahead":    {"Clocks differ.", []metav1.ManagedFieldsEntry{entry(ours, -5*time.Second)}, true},
		"LongAgo":  {"Every present DELETE has seen the finalizer.", []metav1.ManagedFieldsEntry{entry(others, time.Second), entry(ours, time.Hour)}, false},
		"Stripped": {"Without managed fields the age is unknown.", nil, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &v1.DanmNet{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.fields}}
			if got := finalizerRecentlyAdded(o, now); got != tc.want {
				t.Errorf("%s\nfinalizerRecentlyAdded: got %v", tc.reason, got)
			}
		})
	}
}

// changingReader is an API server with one TenantNetwork, which changes, and DanmEps on it.
type changingReader struct {
	client.Reader

	change  *networkChange // nil for none
	begin   time.Time
	network *v1.TenantNetwork
	pods    []attachedPod

	requests *atomic.Int64
}

// attachedPod is a Pod with a DanmEp on the network.
type attachedPod struct {
	name     string
	pod      *metav1.PartialObjectMetadata // nil if it is gone
	err      error                         // of a read of the Pod
	foreign  bool                          // another program has written the DanmEp
	detached time.Duration                 // when its node removes the DanmEp, zero for never
}

// pod reads the metadata of a Pod.
func (r changingReader) pod(key client.ObjectKey, into *metav1.PartialObjectMetadata) error {
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
	if key.Namespace != "ns" {
		return missing
	}
	i := slices.IndexFunc(r.pods, func(p attachedPod) bool { return p.name == key.Name })
	switch {
	case i < 0:
		into.Name, into.UID = key.Name, types.UID(key.Name) // it attaches later
	case r.pods[i].err != nil:
		return r.pods[i].err
	case r.pods[i].pod == nil:
		return missing
	default:
		r.pods[i].pod.DeepCopyInto(into)
	}
	return nil
}

// endpoints are the DanmEps that exist now.
func (r changingReader) endpoints() (eps []v1.DanmEp) {
	pods := r.pods
	if c := r.changed(); c != nil && c.attached {
		pods = append(slices.Clone(pods), attachedPod{name: "web"})
	}
	for _, p := range pods {
		if p.detached != 0 && time.Since(r.begin) >= p.detached {
			continue
		}
		ep := v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ep-" + p.name, UID: types.UID("ep-" + p.name)}}
		ep.Spec = v1.DanmEpSpec{NetworkName: "net", NetworkUID: "u", APIType: v1.KindTenantNetwork, Host: "n1", Pod: p.name, PodUID: p.name}
		if p.foreign {
			ep.Spec.NetworkUID, ep.Spec.PodUID = "", ""
		}
		eps = append(eps, ep)
	}
	return eps
}

// networkChange is what happens to the network, and when.
type networkChange struct {
	after    time.Duration
	edit     func(*v1.TenantNetwork) // nil for the deletion
	attached bool                    // a Pod
	err      error                   // of each read
}

// changed returns the change if it has happened.
func (r changingReader) changed() *networkChange {
	if r.change == nil || time.Since(r.begin) < r.change.after {
		return nil
	}
	return r.change
}

// Get implements client.Reader.
func (r changingReader) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	r.requests.Add(1)
	switch into := obj.(type) {
	case *metav1.PartialObjectMetadata:
		return r.pod(key, into)
	case *v1.DanmEp:
		eps := r.endpoints()
		i := slices.IndexFunc(eps, func(ep v1.DanmEp) bool { return ep.Name == key.Name })
		if i < 0 {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "danmeps"}, key.Name)
		}
		eps[i].DeepCopyInto(into)
		return nil
	}
	into, ok := obj.(*v1.TenantNetwork)
	c := r.changed()
	switch {
	case !ok, c != nil && c.edit == nil && c.err == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "tenantnetworks"}, key.Name)
	case c != nil && c.err != nil:
		return c.err
	}
	r.network.DeepCopyInto(into)
	if c != nil {
		into.ResourceVersion = "2"
		c.edit(into)
	}
	return nil
}

// List implements client.Reader.
func (r changingReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	r.requests.Add(1)
	if eps, ok := list.(*v1.DanmEpList); ok {
		eps.Items = r.endpoints()
	}
	return nil
}

// The deletion of a network of which a node has pre-allocated addresses waits until the node returns
// them, no longer than the API server does.
func TestDeletionWaits(t *testing.T) {
	t.Parallel()
	returned := func(tn *v1.TenantNetwork) { tn.Status.IPAM.Held = nil }
	keptBy := func(edit func(*v1.TenantNetwork)) *networkChange {
		return &networkChange{after: time.Second, edit: edit}
	}
	const refused = "try again in 20s, when the nodes have returned them"
	cases := map[string]struct {
		reason        string
		change        *networkChange
		finalizerAge  time.Duration
		serverTimeout time.Duration // of the API server, 10 s when zero
		waiting       int
		dryRun        bool
		want          string        // in the error, "" for none
		took          time.Duration // at most one poll less
	}{
		"Returned": {reason: "The node returns the addresses.", change: keptBy(returned), took: time.Second},
		"ReturnedLate": {reason: "The node returns the addresses just in time.",
			change: &networkChange{after: 7 * time.Second, edit: returned}, took: 7 * time.Second},
		"Never": {reason: "The node is off.", want: refused, took: returnTimeout},
		"ShortTimeout": {reason: "An administrator has lowered timeoutSeconds, and the answer must arrive.",
			serverTimeout: 5 * time.Second, want: refused, took: 4 * time.Second},
		"Attached": {reason: "A Pod attaches meanwhile, with the last pre-allocated address.",
			change: &networkChange{after: 2 * time.Second, edit: returned, attached: true}, want: "Pod ns/web on node n1", took: 2 * time.Second},
		"AttachedOfMany": {reason: "A Pod attaches meanwhile, and the node has more addresses.",
			change: &networkChange{after: 2 * time.Second, edit: func(*v1.TenantNetwork) {}, attached: true}, want: "Pod ns/web on node n1", took: 2 * time.Second},
		"Gone":  {reason: "Another request has deleted the network: the API server says so.", change: &networkChange{after: time.Second}, took: time.Second},
		"Other": {reason: "It was created again: the API server asks again, with the new one.", change: keptBy(func(tn *v1.TenantNetwork) { tn.UID = "v" }), took: time.Second},
		"Going": {reason: "Another request has begun its deletion.",
			change: keptBy(func(tn *v1.TenantNetwork) { tn.DeletionTimestamp = &metav1.Time{Time: time.Now()} }), took: time.Second},
		"Aged":        {reason: "Every present DELETE has seen the finalizer by then.", finalizerAge: maxRequestDuration - 3*time.Second, took: 3 * time.Second},
		"LongAgo":     {reason: "The finalizer keeps the network until the addresses are returned.", finalizerAge: time.Hour},
		"DryRun":      {reason: "A dry run asks no node, so waiting has no use.", dryRun: true, want: refused},
		"TooMany":     {reason: "Others occupy as many requests as may wait.", waiting: maxWaitingDeletions, want: refused},
		"OneLess":     {reason: "One more may wait.", waiting: maxWaitingDeletions - 1, change: keptBy(returned), took: time.Second},
		"Unavailable": {reason: "The API server fails.", change: &networkChange{after: time.Second, err: errors.New("no leader")}, want: "get TenantNetwork/ns/net: no leader", took: time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tn := withPreallocatedAddresses("u")
				tn.ResourceVersion = "1"
				at := metav1.NewTime(time.Now().Add(-tc.finalizerAge))
				tn.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"danm.io/in-use\"":{}}}}`)}}
				reclaims := newReclaimRequester(nil, logr.Discard())
				v := newDeletionValidator(changingReader{change: tc.change, begin: time.Now(), network: tn, requests: &atomic.Int64{}}, reclaims)
				occupy(t, v, tc.waiting)
				limit := tc.serverTimeout
				if limit == 0 {
					limit = maxWebhookTimeout
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				begin := time.Now()
				err := v.validate(ctx, deleteRequest(t, tn, tc.dryRun))
				took := time.Since(begin)
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s\ngot %v, want %q", tc.reason, err, tc.want)
				}
				if took < tc.took || took > tc.took+returnPollInterval {
					t.Errorf("%s\ntook %v, want %v and one poll at most", tc.reason, took, tc.took)
				}
				if asked := queuedRequests(reclaims) == 1; asked == (tc.dryRun || tc.finalizerAge > maxRequestDuration) {
					t.Errorf("%s\nthe nodes were asked: %v", tc.reason, asked)
				}
				if n := len(v.slots.waiting); n != tc.waiting {
					t.Errorf("%s\n%d wait afterwards, want %d", tc.reason, n, tc.waiting)
				}
			})
		})
	}
}

// occupy makes that many deletions of networks in other namespaces wait.
func occupy(t *testing.T, v *deletionValidator, n int) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("other%d", i)
		if _, ok := v.slots.take(&v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: name, UID: types.UID(name)}}); !ok {
			t.Fatalf("slot %d is not free", i)
		}
	}
}

// The deletion of a network waits until nodes have detached Pods that are gone, and only for such.
func TestDeletionWaitsForDetachment(t *testing.T) {
	t.Parallel()
	pod := func(name string, edit func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
		p := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
		if edit != nil {
			edit(p)
		}
		return p
	}
	// terminating returns a Pod whose grace period ends after a time of the bubble's clock, which begins in 2000.
	terminating := func(after time.Duration, finalizers ...string) *metav1.PartialObjectMetadata {
		return pod("a", func(p *metav1.PartialObjectMetadata) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(after)}, finalizers
		})
	}
	many := func(n int, last *metav1.PartialObjectMetadata) (pods []attachedPod) {
		for i := range n {
			pods = append(pods, attachedPod{name: fmt.Sprintf("p%d", i), detached: time.Second})
		}
		if last != nil {
			pods[n-1].pod, pods[n-1].detached = last, 0
		}
		return pods
	}
	lives := func(name string) string { return "Pod ns/" + name + " on node n1 is attached to it" }
	const goneA = "node n1 has not yet detached Pod ns/a, which is gone: try again, and check node n1"
	cases := map[string]struct {
		reason       string
		pods         []attachedPod
		change       *networkChange
		preallocated bool
		waiting      int
		dryRun       bool
		want         []string      // in the error, nil for none
		took         time.Duration // at most one poll less
		requests     int64         // at most, zero for any number
	}{
		"Gone": {reason: "kubelet has removed the Pod, and the node detaches it a moment later.",
			pods: []attachedPod{{name: "a", detached: time.Second}}, took: time.Second},
		"CreatedAgain": {reason: "The Pod of a StatefulSet has the name of the one that is gone, and another DanmEp.",
			pods: []attachedPod{{name: "a", pod: pod("a", func(p *metav1.PartialObjectMetadata) { p.UID = "other" }), detached: time.Second}}, took: time.Second},
		"Terminating": {reason: "The Pod ends before the time is over.",
			pods: []attachedPod{{name: "a", pod: terminating(5 * time.Second), detached: 3 * time.Second}}, took: 3 * time.Second},
		"LongGracePeriod": {reason: "Waiting would be in vain, and the node is in order.",
			pods: []attachedPod{{name: "a", pod: terminating(time.Minute)}}, want: []string{lives("a") + " until it has terminated", "try again when the Pods are gone"}},
		"Finalizer": {reason: "The Pod stays as long as its finalizer.",
			pods: []attachedPod{{name: "a", pod: terminating(time.Second, "example.com/a")}}, want: []string{lives("a") + " until it has terminated"}},
		"AddressesAfterPods": {reason: "The last Pod's address returns to the warm pool first, and the node is asked for it then.",
			pods: []attachedPod{{name: "a", detached: time.Second}}, preallocated: true,
			change: &networkChange{after: 3 * time.Second, edit: func(tn *v1.TenantNetwork) { tn.Status.IPAM.Held = nil }}, took: 3 * time.Second},
		"Deleted": {reason: "Another request deletes the network while Pods are awaited.", pods: []attachedPod{{name: "a"}},
			change: &networkChange{after: time.Second}, took: time.Second},
		"Runs": {reason: "A Pod that runs would lose its network.", pods: []attachedPod{{name: "a", pod: pod("a", nil)}}, want: []string{lives("a"), "delete the Pods first"}},
		"Static": {reason: "The UID of a static Pod is in an annotation of its mirror Pod.",
			pods: []attachedPod{{name: "a", pod: pod("a", func(p *metav1.PartialObjectMetadata) {
				p.UID, p.Annotations = "mirror", map[string]string{corev1.MirrorPodAnnotationKey: "a"}
			})}}, want: []string{lives("a")}},
		"OneRuns": {reason: "Waiting for the others is in vain, and the message names the one that runs.",
			pods: []attachedPod{{name: "a"}, {name: "b", pod: pod("b", nil)}}, want: []string{lives("b"), "1 more"}, took: returnPollInterval},
		"Unknown": {reason: "A Pod that cannot be read may run.", pods: []attachedPod{{name: "a", err: errors.New("no leader")}}, want: []string{lives("a")}},
		"Foreign": {reason: "No daemon removes a DanmEp of another program.",
			pods: []attachedPod{{name: "a", foreign: true}}, want: []string{"DanmEp ns/ep-a is left over", "delete the DanmEp"}},
		"ForeignSecond": {reason: "It is found behind others, too.",
			pods: []attachedPod{{name: "a"}, {name: "b", foreign: true}}, want: []string{"DanmEp ns/ep-b is left over"}, took: returnPollInterval},
		"Attached": {reason: "Another Pod attaches meanwhile.", pods: []attachedPod{{name: "a"}},
			change: &networkChange{after: 2 * time.Second, edit: func(*v1.TenantNetwork) {}, attached: true}, want: []string{lives("web")}, took: 2 * time.Second},
		"Never": {reason: "The node is off. A poll reads the network and one DanmEp.", pods: []attachedPod{{name: "a"}},
			want: []string{goneA}, took: returnTimeout, requests: 2 + 2*int64(returnTimeout/returnPollInterval)},
		"Many":     {reason: "A node detaches more Pods than one check looks up.", pods: many(3*maxPodLookups, nil), took: time.Second},
		"ManyRun":  {reason: "The last one runs, and is found.", pods: many(3*maxPodLookups, pod("p47", nil)), want: []string{lives("p47")}, took: time.Second},
		"DryRun":   {reason: "It answers for the present, with one list and one Pod.", dryRun: true, pods: many(9, nil), want: []string{"has not yet detached Pod ns/p0"}, requests: 2},
		"Occupied": {reason: "Others occupy as many requests as may wait.", waiting: maxWaitingDeletions, pods: many(9, nil), want: []string{"has not yet detached"}, requests: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tn := withPreallocatedAddresses("u")
				tn.ResourceVersion = "1"
				if !tc.preallocated {
					tn.Status.IPAM.Held = nil
				}
				reclaims := newReclaimRequester(nil, logr.Discard())
				reader := changingReader{change: tc.change, begin: time.Now(), network: tn, pods: tc.pods, requests: &atomic.Int64{}}
				v := newDeletionValidator(reader, reclaims)
				occupy(t, v, tc.waiting)
				ctx, cancel := context.WithTimeout(t.Context(), maxWebhookTimeout)
				defer cancel()
				begin := time.Now()
				err := v.validate(ctx, deleteRequest(t, tn, tc.dryRun))
				took := time.Since(begin)
				if (err == nil) != (tc.want == nil) {
					t.Errorf("%s\ngot %v, want %q", tc.reason, err, tc.want)
				}
				for _, part := range tc.want {
					if err != nil && !strings.Contains(err.Error(), part) {
						t.Errorf("%s\ngot %v, want %q in it", tc.reason, err, part)
					}
				}
				if took < tc.took || took > tc.took+returnPollInterval {
					t.Errorf("%s\ntook %v, want %v and one poll at most", tc.reason, took, tc.took)
				}
				if asked := queuedRequests(reclaims) == 1; asked != tc.preallocated {
					t.Errorf("%s\nthe nodes were asked: %v", tc.reason, asked)
				}
				if n := reader.requests.Load(); tc.requests != 0 && n > tc.requests {
					t.Errorf("%s\n%d requests, want %d at most", tc.reason, n, tc.requests)
				}
			})
		})
	}
}

// A tenant's deletions leave room for those of others.
func TestWaitSlots(t *testing.T) {
	t.Parallel()
	of := func(ns, uid string) *v1.TenantNetwork {
		return &v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: ns, UID: types.UID(uid)}}
	}
	var s waitSlots
	release, ok := s.take(of("a", "1"))
	if !ok {
		t.Fatal("the first deletion got no slot")
	}
	steps := []struct {
		reason, ns, uid string
		want            bool
	}{
		{"Its network waits already.", "a", "1", false},
		{"Another network of the namespace.", "a", "2", true},
		{"The namespace has its share.", "a", "3", false},
		{"Another namespace.", "b", "4", true},
		{"A ClusterNetwork has no namespace.", "", "5", true},
		{"Netadmins have no share.", "", "6", true},
		{"Netadmins have no share.", "", "7", true},
		{"Netadmins have no share.", "", "8", true},
		{"The last slot.", "", "9", true},
		{"All slots are taken.", "c", "10", false},
	}
	for _, step := range steps {
		if _, ok := s.take(of(step.ns, step.uid)); ok != step.want {
			t.Errorf("%s\nnetwork %s in %q: got %t", step.reason, step.uid, step.ns, ok)
		}
	}
	release()
	if _, ok := s.take(of("a", "3")); !ok {
		t.Error("a slot that was released is not free")
	}
}

// deleteRequest returns the request for the deletion of a network.
func deleteRequest(t *testing.T, tn *v1.TenantNetwork, dryRun bool) admission.Request {
	t.Helper()
	raw, err := json.Marshal(tn)
	if err != nil {
		t.Fatal(err)
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Delete, Kind: metav1.GroupVersionKind(v1.SchemeGroupVersion().WithKind(v1.KindTenantNetwork)),
		Namespace: tn.Namespace, Name: tn.Name, OldObject: runtime.RawExtension{Raw: raw}, DryRun: &dryRun,
	}}
}
