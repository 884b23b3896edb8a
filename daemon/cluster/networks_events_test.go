// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/objects"
)

// moves notes what it is told.
type moves []string

func (m *moves) Look(net claims.Key, version string) {
	*m = append(*m, fmt.Sprint("look ", net.UID, " ", version))
}
func (m *moves) Gone(net claims.Key)     { *m = append(*m, "gone "+net.UID) }
func (m *moves) Reassert(net claims.Key) { *m = append(*m, "reassert "+net.UID) }

// Each event is passed on with its version; a recovery is told of once, however many
// nodes report to it, and again when another one begins.
func TestNetworkEventsArePassedOn(t *testing.T) {
	t.Parallel()
	told := &moves{}
	n := NewNetworks(nil, logr.Discard(), NetworksOptions{Moves: told})
	event := func(uid, version string, recovering bool) *metav1.PartialObjectMetadata {
		o := objects.Metadata(v1.KindClusterNetwork)
		o.Name, o.UID, o.ResourceVersion = "n", types.UID(uid), version
		if recovering {
			o.Annotations = map[string]string{recoveringMark: "true"}
		}
		return o
	}
	n.event(v1.KindClusterNetwork, event("a", "1", false))
	n.event(v1.KindClusterNetwork, event("a", "2", true))
	n.event(v1.KindClusterNetwork, event("a", "3", true))
	n.event(v1.KindClusterNetwork, event("a", "4", false))
	n.event(v1.KindClusterNetwork, event("a", "5", true))
	n.removed(v1.KindClusterNetwork, toolscache.DeletedFinalStateUnknown{Obj: event("a", "5", true)})
	n.event(v1.KindClusterNetwork, event("b", "6", true))
	want := moves{
		"look a 1", "look a 2", "reassert a", "look a 3", "look a 4", "look a 5", "reassert a",
		"gone a", "look b 6", "reassert b",
	}
	if diff := cmp.Diff(&want, told); diff != "" {
		t.Errorf("what the addresses are told (-want +got):\n%s", diff)
	}
	if got := n.queue.Len(); got != 1 {
		t.Errorf("%d networks are queued, want the one of that name", got)
	}
}

// Only the condition counts, as the API server lists what is set.
func TestRecoveryIsSeenInMetadata(t *testing.T) {
	t.Parallel()
	const (
		recovering = `{"f:status":{"f:conditions":{"k:{\"type\":\"Recovering\"}":{".":{},"f:message":{},"f:type":{}}}}}`
		available  = `{"f:status":{"f:conditions":{"k:{\"type\":\"AddressesAvailable\"}":{".":{},"f:message":{}}}}}`
	)
	cases := map[string]struct {
		reason      string
		fields      []metav1.ManagedFieldsEntry
		annotations map[string]string
		want        bool
	}{
		"None":       {reason: "nobody has written it"},
		"Recovering": {reason: "the condition is set", fields: managed("", "{}", "status", recovering), want: true},
		"Status":     {reason: "another condition", fields: managed("status", available)},
		"Main":       {reason: "what is not of the status", fields: managed("", recovering)},
		"Annotation": {reason: "a user's annotation says nothing", annotations: map[string]string{recoveringMark: "true"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := objects.Metadata(v1.KindClusterNetwork)
			o.ManagedFields, o.Annotations = tc.fields, tc.annotations
			if _, err := slimNetwork(o); err != nil {
				t.Fatal(err)
			}
			if got := o.Annotations[recoveringMark] != ""; got != tc.want || o.ManagedFields != nil {
				t.Errorf("%s: recovering is %t, want %t; managedFields %v, want none in the cache", tc.reason, got, tc.want, o.ManagedFields)
			}
		})
	}
}

// managed are managedFields, each a subresource and what is set there.
func managed(pairs ...string) []metav1.ManagedFieldsEntry {
	var all []metav1.ManagedFieldsEntry
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, metav1.ManagedFieldsEntry{Subresource: pairs[i], FieldsV1: metav1.NewFieldsV1(pairs[i+1])})
	}
	return all
}
