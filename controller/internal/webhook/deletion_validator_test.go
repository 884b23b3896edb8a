// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
}

// attachedPod is a Pod with a DanmEp on the network.
type attachedPod struct {
	name     string
	state    podState
	foreign  bool          // another program has written the DanmEp
	detached time.Duration // when its node removes the DanmEp, zero for never
}

// podState is whether a Pod exists.
type podState string

const (
	podRuns  podState = "runs"
	podEnds  podState = "ends"
	podGone  podState = "gone"
	epEnds   podState = "runs, but its DanmEp ends"
	podFails podState = "cannot be read"
)

// pod reads the metadata of a Pod.
func (r changingReader) pod(name string, into *metav1.PartialObjectMetadata) error {
	i := slices.IndexFunc(r.pods, func(p attachedPod) bool { return p.name == name })
	switch {
	case name == "web" && i < 0, i >= 0 && r.pods[i].state == podRuns, i >= 0 && r.pods[i].state == epEnds:
		into.Name = name
	case i >= 0 && r.pods[i].state == podEnds:
		into.Name, into.DeletionTimestamp = name, &metav1.Time{Time: r.begin}
	case i >= 0 && r.pods[i].state == podFails:
		return errors.New("no leader")
	default:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	return nil
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
	if meta, ok := obj.(*metav1.PartialObjectMetadata); ok {
		return r.pod(key.Name, meta)
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
	eps, ok := list.(*v1.DanmEpList)
	if !ok {
		return nil
	}
	pods := r.pods
	if c := r.changed(); c != nil && c.attached {
		pods = append(slices.Clone(pods), attachedPod{name: "web"})
	}
	for _, p := range pods {
		if p.detached != 0 && time.Since(r.begin) >= p.detached {
			continue
		}
		ep := v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ep-" + p.name}}
		ep.Spec = v1.DanmEpSpec{NetworkName: "net", NetworkUID: "u", APIType: v1.KindTenantNetwork, Host: "n1", Pod: p.name}
		if p.foreign {
			ep.Spec.NetworkUID = ""
		}
		if p.state == epEnds {
			ep.DeletionTimestamp = &metav1.Time{Time: r.begin}
		}
		eps.Items = append(eps.Items, ep)
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
				v := newDeletionValidator(changingReader{change: tc.change, begin: time.Now(), network: tn}, reclaims)
				for range tc.waiting {
					v.waiting <- struct{}{}
				}
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
				if len(v.waiting) != tc.waiting {
					t.Errorf("%s\n%d wait afterwards, want %d", tc.reason, len(v.waiting), tc.waiting)
				}
			})
		})
	}
}

// The deletion of a network waits until nodes have detached Pods that were deleted, and only for such.
func TestDeletionWaitsForDetachment(t *testing.T) {
	t.Parallel()
	many := func(n int) (pods []attachedPod) {
		for i := range n {
			pods = append(pods, attachedPod{name: fmt.Sprintf("p%d", i), state: podGone, detached: time.Second})
		}
		return pods
	}
	lives := func(name string) string { return "Pod ns/" + name + " on node n1 is attached to it" }
	cases := map[string]struct {
		reason       string
		pods         []attachedPod
		change       *networkChange
		preallocated bool
		waiting      int
		dryRun       bool
		want         []string      // in the error, nil for none
		took         time.Duration // at most one poll less
	}{
		"Gone": {reason: "kubelet has removed the Pod, and the node detaches it a moment later.",
			pods: []attachedPod{{name: "a", state: podGone, detached: time.Second}}, took: time.Second},
		"Ending": {reason: "The Pod still exists, but ends.",
			pods: []attachedPod{{name: "a", state: podEnds, detached: 3 * time.Second}}, took: 3 * time.Second},
		"EndpointEnds": {reason: "The sandbox was replaced: the Pod runs with another DanmEp, or attaches none.",
			pods: []attachedPod{{name: "a", state: epEnds, detached: time.Second}}, took: time.Second},
		"AddressesAfterPods": {reason: "The last Pod's address returns to the warm pool first, and the node is asked for it then.",
			pods: []attachedPod{{name: "a", state: podGone, detached: time.Second}}, preallocated: true,
			change: &networkChange{after: 3 * time.Second, edit: func(tn *v1.TenantNetwork) { tn.Status.IPAM.Held = nil }}, took: 3 * time.Second},
		"Runs": {reason: "A Pod that runs would lose its network.", pods: []attachedPod{{name: "a", state: podRuns}}, want: []string{lives("a"), "delete the Pods first"}},
		"OneRuns": {reason: "Waiting for the others is in vain, and the message names the one that runs.",
			pods: []attachedPod{{name: "a", state: podGone}, {name: "b", state: podRuns}}, want: []string{lives("b"), "1 more"}},
		"Unknown": {reason: "A Pod that cannot be read may run.", pods: []attachedPod{{name: "a", state: podFails}}, want: []string{lives("a")}},
		"Foreign": {reason: "No daemon removes a DanmEp of another program.",
			pods: []attachedPod{{name: "a", state: podGone, foreign: true}}, want: []string{"DanmEp ns/ep-a is left over", "delete the DanmEp"}},
		"ForeignSecond": {reason: "It is found behind others, too.",
			pods: []attachedPod{{name: "a", state: podGone}, {name: "b", state: podGone, foreign: true}}, want: []string{"DanmEp ns/ep-b is left over"}},
		"Attached": {reason: "Another Pod attaches meanwhile.", pods: []attachedPod{{name: "a", state: podGone}},
			change: &networkChange{after: 2 * time.Second, edit: func(*v1.TenantNetwork) {}, attached: true}, want: []string{lives("web")}, took: 2 * time.Second},
		"Never": {reason: "The node is off.", pods: []attachedPod{{name: "a", state: podGone}},
			want: []string{"node n1 has not yet detached Pod ns/a, which was deleted: try again, and check node n1"}, took: returnTimeout},
		"Many": {reason: "All are looked up.", pods: many(maxPodLookups), took: time.Second},
		"TooMany": {reason: "A request looks up no more Pods than that.", pods: many(maxPodLookups + 1),
			want: []string{lives(fmt.Sprintf("p%d", maxPodLookups)), fmt.Sprintf("%d more", maxPodLookups)}},
		"DryRun":   {reason: "It answers for the present.", dryRun: true, pods: many(1), want: []string{"has not yet detached"}},
		"Occupied": {reason: "Others occupy as many requests as may wait.", waiting: maxWaitingDeletions, pods: many(1), want: []string{"has not yet detached"}},
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
				v := newDeletionValidator(changingReader{change: tc.change, begin: time.Now(), network: tn, pods: tc.pods}, reclaims)
				for range tc.waiting {
					v.waiting <- struct{}{}
				}
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
			})
		})
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
