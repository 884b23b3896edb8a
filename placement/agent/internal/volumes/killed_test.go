// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

var errKilled = errors.New("the agent was killed")

// killer ends an agent at one of its writes: it gets no answer to any request from then on.
type killer struct {
	at     int  // which write; the first one is 1
	after  bool // the API server has carried it out
	writes int
	dead   bool
}

// install makes the API server end the agent.
func (k *killer) install(kube *fake.Clientset) {
	kube.PrependReactor("*", "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if k.dead {
			return true, nil, errKilled
		}
		verb := action.GetVerb()
		if verb != "create" && verb != "update" && verb != "delete" {
			return false, nil, nil
		}
		if k.writes++; k.writes != k.at {
			return false, nil, nil
		}
		k.dead = true
		if !k.after {
			return true, nil, errKilled
		}
		_, o, err := k8stesting.ObjectReaction(kube.Tracker())(action)
		return true, o, errors.Join(err, errKilled)
	})
}

// restart lets a new agent make all of its requests.
func (k *killer) restart() { k.dead, k.at = false, 0 }

// transferOrder is what an agent is to do in one of a transfer's states.
type transferOrder struct {
	action v1alpha1.VolumeAction
	bind   bool // the cluster has no claim yet
}

// A transfer ends as without a failure when the agent is killed at any of its writes, before or after the API server has
// carried it out, and a new agent continues. There are never two PersistentVolumes of the volume, and none that the
// agent has taken from its claim is without the reclaim policy Retain.
func TestAgentKilledAtEachWrite(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		orders []transferOrder
		empty  bool // the cluster does not have the volume
		writes int  // of an agent that is not killed
	}{
		"leaves":      {"The first cluster gives its volume away.", []transferOrder{{v1alpha1.VolumeFence, false}, {v1alpha1.VolumeDiscard, false}}, false, 2},
		"returns":     {"The user takes the move back.", []transferOrder{{v1alpha1.VolumeFence, false}, {v1alpha1.VolumeKeep, false}}, false, 2},
		"is shared":   {"Several clusters may attach it: it is fenced at the end.", []transferOrder{{v1alpha1.VolumeRetain, false}, {v1alpha1.VolumeDiscard, false}}, false, 3},
		"comes":       {"The other cluster gets the volume.", []transferOrder{{v1alpha1.VolumeBind, true}}, true, 1},
		"comes, goes": {"The other cluster lets go of the volume again.", []transferOrder{{v1alpha1.VolumeBind, true}, {v1alpha1.VolumeDiscard, true}}, true, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, writes := transferState(t, tc.orders, tc.empty, &killer{})
			if writes != tc.writes {
				t.Errorf("%s\nwrites: got %d, want %d", tc.reason, writes, tc.writes)
			}
			for at := 1; at <= writes; at++ {
				for _, after := range []bool{false, true} {
					got, _ := transferState(t, tc.orders, tc.empty, &killer{at: at, after: after})
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s\nkilled at write %d, which was carried out: %t: -want +got\n%s", tc.reason, at, after, diff)
					}
				}
			}
		})
	}
}

// transferState carries out orders, and returns the PersistentVolumes at the end, and the number of writes.
func transferState(t *testing.T, orders []transferOrder, empty bool, k *killer) (map[string]corev1.PersistentVolumeSpec, int) {
	t.Helper()
	_, kube, now := cluster(func(pv *corev1.PersistentVolume, _ *storagev1.CSIDriver) {
		if empty {
			pv.Spec.CSI.VolumeHandle = "other"
		}
	})
	k.install(kube)
	newAgent := func() *Operator {
		return &Operator{Core: kube.CoreV1(), Storage: kube.StorageV1(), Namespace: "patchbay-system", Now: func() time.Time { return *now }}
	}
	o, at := newAgent(), k.at
	for _, order := range orders {
		for done := false; !done; {
			done = order.apply(t.Context(), o)
			if k.dead {
				k.restart()
				o, done = newAgent(), false
			}
			expectSafeVolumes(t, kube, fmt.Sprintf("%s, killed at write %d", order.action, at))
			if *now = now.Add(time.Second); now.After(time.Now().Add(time.Hour)) {
				t.Fatalf("%s does not end", order.action)
			}
		}
	}
	list, err := kube.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]corev1.PersistentVolumeSpec{}
	for _, pv := range list.Items {
		got[pv.Name] = pv.Spec
	}
	return got, k.writes
}

// apply reports whether the agent has carried out an order.
func (order transferOrder) apply(ctx context.Context, o *Operator) bool {
	source, claim := testSource(), testClaim()
	spec := &v1alpha1.VolumeOrder{Action: order.action, Source: source}
	if !order.bind {
		return o.Apply(ctx, spec, claim).Action == order.action
	}
	claim.UID = "" // the test has no claim: its own cluster creates it after the volume
	if order.action == v1alpha1.VolumeBind {
		return o.Prepare(ctx, spec, claim) == nil
	}
	return o.Apply(ctx, spec, claim).Action == order.action
}

// expectSafeVolumes checks what holds at each moment.
func expectSafeVolumes(t *testing.T, kube *fake.Clientset, when string) {
	t.Helper()
	o, err := kube.Tracker().List(corev1.SchemeGroupVersion.WithResource("persistentvolumes"), corev1.SchemeGroupVersion.WithKind("PersistentVolume"), "")
	if err != nil {
		t.Fatal(err)
	}
	list, ok := o.(*corev1.PersistentVolumeList)
	if !ok {
		t.Fatalf("got %T", o)
	}
	names := map[string]string{}
	for _, pv := range list.Items {
		handle := pv.Spec.CSI.VolumeHandle
		if other := names[handle]; other != "" {
			t.Errorf("%s: PersistentVolumes %s and %s have the volume %s", when, other, pv.Name, handle)
		}
		names[handle] = pv.Name
		if ref := pv.Spec.ClaimRef; (ref.UID != "claim-1") && pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
			t.Errorf("%s: PersistentVolume %s without its claim: reclaim policy: got %s, want Retain", when, pv.Name, pv.Spec.PersistentVolumeReclaimPolicy)
		}
	}
}
