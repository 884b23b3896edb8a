// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// Write writes this node's NodeNetwork, and makes it when it is missing. It
// goes with its Node: garbage collection takes it away.
func (n *NodeNetworks) Write(ctx context.Context, status v1.NodeNetworkStatus) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	obj := &v1.NodeNetwork{}
	err := n.conn.Direct.Get(ctx, client.ObjectKey{Name: n.conn.Node}, obj)
	if apierrors.IsNotFound(err) {
		obj, err = n.create(ctx)
	}
	if err != nil {
		return fmt.Errorf("read NodeNetwork %s: %w", n.conn.Node, err)
	}
	conditions := obj.Status.Conditions
	for _, c := range status.Conditions {
		meta.SetStatusCondition(&conditions, c) // keeps the time of the last change
	}
	obj.Status = status
	obj.Status.Conditions = conditions
	if err := n.conn.Direct.Status().Update(ctx, obj); err != nil {
		return fmt.Errorf("write status of NodeNetwork %s: %w", n.conn.Node, err)
	}
	return nil
}

// create makes the object without a status, which a create ignores.
func (n *NodeNetworks) create(ctx context.Context) (*v1.NodeNetwork, error) {
	uid, err := n.conn.NodeUID(ctx)
	if err != nil {
		return nil, err
	}
	node := nodeMeta()
	obj := &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{
		Name: n.conn.Node,
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: node.APIVersion, Kind: node.Kind, Name: n.conn.Node, UID: types.UID(uid)},
		},
	}}
	if err := n.conn.Direct.Create(ctx, obj); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	return obj, nil
}
