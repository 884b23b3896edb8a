// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Steward changes status.ipam in the name of the cluster; claims.Steward is one.
type Steward interface {
	// Audit makes the bitmap agree with entries and DanmEps, and reports addresses
	// with two owners. What it corrected counts beside an error.
	Audit(ctx context.Context, key claims.Key) (claims.Findings, error)
	// Evict removes the entries of nodes (name to UID of the entry), and frees
	// what they alone covered.
	Evict(ctx context.Context, key claims.Key, gone map[string]string) (freed int64, err error)
	// EndDeletion takes the finalizer off a network in deletion that nobody uses any
	// more, and reports whether it is off. A conflict is claims.ErrConflict.
	EndDeletion(ctx context.Context, key claims.Key) (done bool, err error)
	// Recover ends the recovery when all of nodes are done or skipped; it
	// returns who is awaited.
	Recover(ctx context.Context, key claims.Key, nodes, skip []string) (awaited []string, err error)
}

// Witness is told what a watch sees of networks, and knows by it when an object went
// back in time; claims.Steward is one.
type Witness interface {
	// Look says that a network's metadata is at that version.
	Look(key claims.Key, resourceVersion string)
	// Gone says that there is no such network any more.
	Gone(key claims.Key)
}

// Recorder makes Events; a Kubernetes EventRecorder is one.
type Recorder interface {
	// Event reports on an object.
	Event(object runtime.Object, eventtype, reason, message string)
}
