// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// News reports on this node's NodeNetwork what got better or worse with its links:
// kubectl describe nodenetwork shows it.
func (e *Events) News(ctx context.Context, nodes *NodeNetworks, n netwatcher.News) {
	ref := &corev1.ObjectReference{
		APIVersion: v1.SchemeGroupVersion().String(), Kind: "NodeNetwork", Name: nodes.conn.Node, UID: nodes.ownUID(ctx),
	}
	kind := corev1.EventTypeNormal
	if n.Warning {
		kind = corev1.EventTypeWarning
	}
	e.recorder.Event(ref, kind, n.Reason, n.Message)
}

// ownUID is that of this node's object, empty while it is not known: the Event is
// found by name then.
func (n *NodeNetworks) ownUID(ctx context.Context) types.UID {
	own := &v1.NodeNetwork{}
	if !n.Ready() || n.conn.Cache.Get(ctx, client.ObjectKey{Name: n.conn.Node}, own) != nil {
		return ""
	}
	return own.UID
}
