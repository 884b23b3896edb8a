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

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// moves notes what it is told.
type moves []string

func (m *moves) Look(net claims.Key, version string) {
	*m = append(*m, fmt.Sprint("look ", net.UID, " ", version))
}
func (m *moves) Gone(net claims.Key)     { *m = append(*m, "gone "+net.UID) }
func (m *moves) Reassert(net claims.Key) { *m = append(*m, "reassert "+net.UID) }

// Each event is passed on with its version; a recovery is told of once, however many
// nodes report to it, and again when another one begins, even while it runs.
func TestNetworkEventsArePassedOn(t *testing.T) {
	t.Parallel()
	told := &moves{}
	n := NewNetworkCache(nil, logr.Discard(), NetworkCacheOptions{Observer: told})
	event := func(uid, version, since string) *metav1.PartialObjectMetadata {
		o := kube.PartialMetadata(v1.KindClusterNetwork)
		o.Name, o.UID, o.ResourceVersion = "n", types.UID(uid), version
		if since != "" {
			o.Annotations = map[string]string{v1.RecoveringAnnotation: since}
		}
		return o
	}
	n.handleChange(v1.KindClusterNetwork, event("a", "1", ""))
	n.handleChange(v1.KindClusterNetwork, event("a", "2", "noon"))
	n.handleChange(v1.KindClusterNetwork, event("a", "3", "noon"))
	n.handleChange(v1.KindClusterNetwork, event("a", "4", "one")) // it began anew while it ran
	n.handleChange(v1.KindClusterNetwork, event("a", "5", ""))
	n.handleChange(v1.KindClusterNetwork, event("a", "6", "one"))
	n.handleDelete(v1.KindClusterNetwork, toolscache.DeletedFinalStateUnknown{Obj: event("a", "6", "one")})
	n.handleChange(v1.KindClusterNetwork, event("b", "7", "one"))
	want := moves{
		"look a 1", "look a 2", "reassert a", "look a 3", "look a 4", "reassert a", "look a 5",
		"look a 6", "reassert a", "gone a", "look b 7", "reassert b",
	}
	if diff := cmp.Diff(&want, told); diff != "" {
		t.Errorf("what the addresses are told (-want +got):\n%s", diff)
	}
	if got := n.queue.Len(); got != 1 {
		t.Errorf("%d networks are queued, want the one of that name", got)
	}
}
