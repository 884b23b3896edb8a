// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// suspicion is how long the API server has to refuse the daemon before that
// counts: one that starts refuses everybody for a moment.
const suspicion = 3 * time.Second

// BeingRemoved reports whether a DaemonSet is gone or being deleted. A daemon
// that the API server does not let ask any more is being removed, too: deleting
// all of an installation takes its rights away in no particular order.
func (c *Connection) BeingRemoved(ctx context.Context, namespace, name string) (bool, error) {
	ds := metadata(metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet"})
	for refused := time.Now(); ; {
		err := c.Direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, ds)
		switch {
		case err == nil:
			return ds.DeletionTimestamp != nil, nil
		case apierrors.IsNotFound(err):
			return true, nil
		case !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err):
			return false, fmt.Errorf("get DaemonSet %s/%s: %w", namespace, name, err)
		case time.Since(refused) > suspicion:
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("get DaemonSet %s/%s: %w", namespace, name, ctx.Err())
		case <-time.After(suspicion / 10):
		}
	}
}
