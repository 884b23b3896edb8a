// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NodeUID returns the UID of this node's Node object: a machine that was
// deleted and joined again under its old name is another Node.
func (c *Connection) NodeUID(ctx context.Context) (string, error) {
	node := metadata(nodeMeta())
	if err := c.Direct.Get(ctx, client.ObjectKey{Name: c.Node}, node); err != nil {
		return "", fmt.Errorf("get Node %s: %w", c.Node, portError(err))
	}
	return string(node.UID), nil
}

// nodeMeta names the kind Node.
func nodeMeta() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node"}
}
