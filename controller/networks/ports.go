// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// Seen is a network object as it was read.
type Seen struct {
	// UID and Generation of the object.
	UID        types.UID
	Generation int64
	// Linked says that the network is valid and has a link on nodes: only of such a
	// one this package says whether it is ready.
	Linked bool
	// Ready is the condition that it has; nil when it has none.
	Ready *metav1.Condition
}

// Version is which network object of a name there is, and of when.
type Version struct {
	UID        types.UID
	Generation int64
	// ResourceVersion is the API server's.
	ResourceVersion string
}

// Store is the API server, for network objects.
type Store interface {
	// Nodes returns what all nodes say, as a watch last saw it.
	Nodes(ctx context.Context) ([]v1.NodeNetwork, error)
	// Version returns what a watch last saw; false when there is no such network.
	Version(ctx context.Context, ref network.Ref) (Version, bool, error)
	// Read reads the object, which is not older than resourceVersion; false when there
	// is no such network.
	Read(ctx context.Context, ref network.Ref, resourceVersion string) (Seen, bool, error)
	// Write makes c the network's condition; not that of another one of its name.
	// With nil it has none of ours any more; others' stay.
	Write(ctx context.Context, ref network.Ref, uid types.UID, c *metav1.Condition) error
}

// Recorder makes Events; a Kubernetes EventRecorder is one.
type Recorder interface {
	// Event reports on an object.
	Event(object runtime.Object, eventtype, reason, message string)
}
