// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/objects"
)

// endpoints writes and removes DanmEps.
type endpoints struct {
	c client.Client
}

// create makes the DanmEp and returns its UID. One of that name with the same
// EndpointID is this one: its create succeeded and the answer was lost.
func (e endpoints) create(ctx context.Context, ep *v1.DanmEp) (types.UID, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	fresh := ep.DeepCopy()
	err := e.c.Create(ctx, fresh)
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
// the UID is not known.
func (e endpoints) find(ctx context.Context, key client.ObjectKey, id string, uid types.UID) (*v1.DanmEp, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ep := &v1.DanmEp{}
	if err := e.c.Get(ctx, key, ep); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get DanmEp %s: %w", key, err)
	}
	if (uid != "" && ep.UID != uid) || (uid == "" && ep.Spec.EndpointID != id) {
		return nil, nil
	}
	return ep, nil
}

// remove takes the node's finalizer off and deletes the DanmEp. Somebody may
// have asked for its deletion before: then it goes with the finalizer.
func (e endpoints) remove(ctx context.Context, ep *v1.DanmEp) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return objects.RemoveEndpoint(ctx, e.c, ep)
}
