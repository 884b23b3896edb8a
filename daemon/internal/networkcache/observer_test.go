// SPDX-License-Identifier: Apache-2.0

package networkcache

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
	"github.com/patchbay-cni/patchbay/internal/network"
)

// recordingObserver records its calls.
type recordingObserver []string

// ObserveVersion implements Observer.
func (o *recordingObserver) ObserveVersion(net network.Key, version string) {
	*o = append(*o, fmt.Sprint("look ", net.UID, " ", version))
}

// NetworkDeleted implements Observer.
func (o *recordingObserver) NetworkDeleted(net network.Key) { *o = append(*o, "gone "+net.UID) }

// ReportToRecovery implements Observer.
func (o *recordingObserver) ReportToRecovery(net network.Key) { *o = append(*o, "reassert "+net.UID) }

// The observer receives each event with its version. It receives a recovery once, although each
// node's report changes the network, and again when another recovery begins.
func TestObserverReceivesEvents(t *testing.T) {
	t.Parallel()
	observer := &recordingObserver{}
	c := New(nil, logr.Discard(), Options{Observer: observer})
	event := func(uid, version, since string) *metav1.PartialObjectMetadata {
		o := kube.PartialMetadata(v1.KindClusterNetwork)
		o.Name, o.UID, o.ResourceVersion = "n", types.UID(uid), version
		if since != "" {
			o.Annotations = map[string]string{v1.RecoveringAnnotation: since}
		}
		return o
	}
	c.handleChange(v1.KindClusterNetwork, event("a", "1", ""))
	c.handleChange(v1.KindClusterNetwork, event("a", "2", "noon"))
	c.handleChange(v1.KindClusterNetwork, event("a", "3", "noon"))
	c.handleChange(v1.KindClusterNetwork, event("a", "4", "one")) // another recovery began during the first one
	c.handleChange(v1.KindClusterNetwork, event("a", "5", ""))
	c.handleChange(v1.KindClusterNetwork, event("a", "6", "one"))
	c.handleDelete(v1.KindClusterNetwork, toolscache.DeletedFinalStateUnknown{Obj: event("a", "6", "one")})
	c.handleChange(v1.KindClusterNetwork, event("b", "7", "one"))
	want := recordingObserver{
		"look a 1", "look a 2", "reassert a", "look a 3", "look a 4", "reassert a", "look a 5",
		"look a 6", "reassert a", "gone a", "look b 7", "reassert b",
	}
	if diff := cmp.Diff(&want, observer); diff != "" {
		t.Errorf("calls of the observer (-want +got):\n%s", diff)
	}
	if got := c.queue.Len(); got != 1 {
		t.Errorf("got %d queued networks, want 1", got)
	}
}
