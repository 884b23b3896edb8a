// SPDX-License-Identifier: Apache-2.0

package danmep

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/daemon/internal/nodestate"
	"github.com/patchbay-cni/patchbay/internal/kube"
)

// danmEpClient reads and writes DanmEps.
type danmEpClient struct {
	client client.Client
	// node returns this node. Only find needs it.
	node func() (nodestate.Identity, bool)
}

// create creates the DanmEp and returns its UID. A DanmEp of that name with the same EndpointID
// comes from an earlier create whose answer was lost.
func (e danmEpClient) create(ctx context.Context, ep *v1.DanmEp) (types.UID, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeclient.RequestTimeout)
	defer cancel()
	created := ep.DeepCopy()
	err := e.client.Create(ctx, created)
	if err == nil {
		return created.UID, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("create DanmEp %s/%s: %w", ep.Namespace, ep.Name, err)
	}
	found, err := e.find(ctx, client.ObjectKeyFromObject(ep), ep.Spec.EndpointID, "")
	if err != nil {
		return "", err
	}
	if found == nil {
		return "", fmt.Errorf("create DanmEp %s/%s: another endpoint has this name", ep.Namespace, ep.Name)
	}
	return found.UID, nil
}

// find reads a DanmEp with quorum. It returns nil when there is none, or when the DanmEp of that
// name belongs to another endpoint: it has another UID, or another EndpointID if uid is empty. A
// DanmEp with a known UID may have moved to another namespace, where find finds it as well.
func (e danmEpClient) find(ctx context.Context, key client.ObjectKey, id string, uid types.UID) (*v1.DanmEp, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeclient.RequestTimeout)
	defer cancel()
	ep := &v1.DanmEp{}
	err := e.client.Get(ctx, key, ep)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get DanmEp %s: %w", key, err)
	}
	switch {
	case err == nil && (ep.UID == uid || uid == "" && ep.Spec.EndpointID == id):
		return ep, nil
	case uid == "": // this node knows of no DanmEp that could have moved
		return nil, nil
	}
	node, _ := e.node()
	return e.findMoved(ctx, node.Name, key, id)
}

// findMoved returns the DanmEp that the controller created when the namespace of the DanmEp with
// that key was deleted, and nil when there is none. Admission policies keep other nodes from
// creating DanmEps of this node.
func (e danmEpClient) findMoved(ctx context.Context, node string, from client.ObjectKey, id string) (*v1.DanmEp, error) {
	list := &v1.DanmEpList{}
	if err := e.client.List(ctx, list, client.MatchingFields{"spec.Host": node}); err != nil {
		return nil, fmt.Errorf("list DanmEps of node %s to find %s in another namespace: %w", node, from, err)
	}
	for i := range list.Items {
		ep := &list.Items[i]
		if origin, ok := kube.MovedFrom(ep); ok && origin == from && ep.Spec.EndpointID == id {
			return ep, nil
		}
	}
	return nil, nil
}

// protect adds the node's finalizer to a DanmEp that lacks it.
func (e danmEpClient) protect(ctx context.Context, ep *v1.DanmEp) error {
	if !lacksFinalizer(ep) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, kubeclient.RequestTimeout)
	defer cancel()
	before := ep.DeepCopy()
	controllerutil.AddFinalizer(ep, v1.NodeFinalizer)
	err := e.client.Patch(ctx, ep, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("add finalizer to DanmEp %s/%s: %w", ep.Namespace, ep.Name, err)
	}
	return nil
}

// minMoveDelay is shorter than the time that the controller waits before it moves a DanmEp in
// deletion.
const minMoveDelay = time.Minute

// remove removes the node's finalizer from the DanmEp and deletes the DanmEp. When the DanmEp has
// been in deletion for long, or is gone already, the controller may be moving it. remove then
// removes the moved DanmEp as well, because no DanmEp may cover an address that is freed next.
func (e danmEpClient) remove(ctx context.Context, ep *v1.DanmEp) error {
	ctx, cancel := context.WithTimeout(ctx, kubeclient.RequestTimeout)
	defer cancel()
	mayMove := ep.DeletionTimestamp != nil && time.Since(ep.DeletionTimestamp.Time) > minMoveDelay
	removed, err := kube.RemoveEndpoint(ctx, e.client, ep)
	if err != nil || removed && !mayMove {
		return err
	}
	moved, err := e.findMoved(ctx, ep.Spec.Host, client.ObjectKeyFromObject(ep), ep.Spec.EndpointID)
	if moved == nil || err != nil {
		return err
	}
	_, err = kube.RemoveEndpoint(ctx, e.client, moved)
	return err
}
