// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// BeingRemoved reports whether a DaemonSet is gone or being deleted. A daemon
// that the API server does not let ask any more is being removed, too: deleting
// all of an installation takes its rights away in no particular order.
func (c *Connection) BeingRemoved(ctx context.Context, namespace, name string) (bool, error) {
	ds := metadata(metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet"})
	err := c.Direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, ds)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get DaemonSet %s/%s: %w", namespace, name, err)
	}
	return ds.DeletionTimestamp != nil, nil
}
