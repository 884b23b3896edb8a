// SPDX-License-Identifier: Apache-2.0

package kubeclient

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
)

// CleanUpRequest returns the Installation for whose uninstallation the DaemonSet is being deleted. It is empty if the
// DaemonSet is not being deleted, if somebody else than the operator deletes it, or if it or the account's right to
// read it is gone.
func (c *Connection) CleanUpRequest(ctx context.Context, namespace, name string) (types.UID, error) {
	ds := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet"}}
	err := c.Direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, ds)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("get DaemonSet %s/%s: %w", namespace, name, err)
	case ds.DeletionTimestamp == nil:
		return "", nil
	}
	return types.UID(ds.Annotations[v1alpha1.CleanUpAnnotation]), nil
}
