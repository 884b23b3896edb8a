// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mustBeOff refuses a node that is Ready: its Pods run, and what they have would be
// handed out again. Whoever may not read Nodes is not checked.
func mustBeOff(ctx context.Context, c client.Client, name string) error {
	node := &corev1.Node{}
	switch err := c.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("get Node %s: %w", name, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return fmt.Errorf("node %s is Ready: its patchbayd will report by itself (kubectl -n patchbay-system get pods -o wide "+
				"says whether it runs). To give addresses of its Pods to others all the same, use --force", name)
		}
	}
	return nil
}
