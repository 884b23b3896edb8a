// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
)

// danmEpClient writes and removes DanmEps.
type danmEpClient struct {
	client client.Client
	// node is this node. It is nil for who only removes.
	node func() (NodeIdentity, bool)
}

// create makes the DanmEp and returns its UID. One of that name with the same
// EndpointID is this one: its create succeeded and the answer was lost.
func (e danmEpClient) create(ctx context.Context, ep *v1.DanmEp) (types.UID, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	fresh := ep.DeepCopy()
	err := e.client.Create(ctx, fresh)
	if err == nil {
		return fresh.UID, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("create DanmEp %s/%s: %w", ep.Namespace, ep.Name, err)
	}
	found, err := e.find(ctx, client.ObjectKeyFromObject(ep), ep.Spec.EndpointID, "")
	if err != nil {
		return "", err
	}
	if found == nil {
		return "", fmt.Errorf("create DanmEp %s/%s: the name is taken by another endpoint", ep.Namespace, ep.Name)
	}
	return found.UID, nil
}

// find reads a DanmEp, with quorum. It returns nil when there is none, or when
// the one of that name is not ours: another UID, or another EndpointID where
// the UID is not known. One that existed may have moved to another namespace.
func (e danmEpClient) find(ctx context.Context, key client.ObjectKey, id string, uid types.UID) (*v1.DanmEp, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ep := &v1.DanmEp{}
	err := e.client.Get(ctx, key, ep)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get DanmEp %s: %w", key, err)
	}
	switch {
	case err == nil && (ep.UID == uid || uid == "" && ep.Spec.EndpointID == id):
		return ep, nil
	case uid == "": // it never was there, as far as this node knows
		return nil, nil
	}
	host, _ := e.node()
	return e.findMoved(ctx, host.Name, key, id)
}

// findMoved finds the DanmEp that the controller made when the namespace of the one that had
// that key was deleted, nil when there is none. The policies keep other nodes from making
// DanmEps of this one.
func (e danmEpClient) findMoved(ctx context.Context, node string, from client.ObjectKey, id string) (*v1.DanmEp, error) {
	list := &v1.DanmEpList{}
	if err := e.client.List(ctx, list, client.MatchingFields{"spec.Host": node}); err != nil {
		return nil, fmt.Errorf("look for DanmEp %s in another namespace: %w", from, err)
	}
	for i := range list.Items {
		ep := &list.Items[i]
		if was, ok := kube.MovedFrom(ep); ok && was == from && ep.Spec.EndpointID == id {
			return ep, nil
		}
	}
	return nil, nil
}

// minMoveDelay is less than the controller waits before it moves a DanmEp in deletion.
const minMoveDelay = time.Minute

// remove takes the node's finalizer off and deletes the DanmEp. Somebody may
// have asked for its deletion before: then it goes with the finalizer. If that is long ago,
// or the DanmEp is gone already, the controller may be moving it: nothing may be left that
// covers what is about to be freed.
func (e danmEpClient) remove(ctx context.Context, ep *v1.DanmEp) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	late := ep.DeletionTimestamp != nil && time.Since(ep.DeletionTimestamp.Time) > minMoveDelay
	removed, err := kube.RemoveEndpoint(ctx, e.client, ep)
	if err != nil || removed && !late {
		return err
	}
	moved, err := e.findMoved(ctx, ep.Spec.Host, client.ObjectKeyFromObject(ep), ep.Spec.EndpointID)
	if moved == nil || err != nil {
		return err
	}
	_, err = kube.RemoveEndpoint(ctx, e.client, moved)
	return err
}
