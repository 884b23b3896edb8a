// SPDX-License-Identifier: Apache-2.0

package kubeclient

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
)

const (
	// forbiddenGracePeriod is how long DaemonSetRemoval repeats a request that the API server forbids. An API server
	// that starts forbids all requests for a moment.
	forbiddenGracePeriod = 3 * time.Second
	// removalTimeout bounds one request of DaemonSetRemoval: another API server may answer the next one.
	removalTimeout = 2 * time.Second
)

// Removal tells whether and for whom the daemon's DaemonSet is removed.
type Removal struct {
	// Deleted is whether the DaemonSet is gone or being deleted.
	Deleted bool
	// CleanUp is the Installation for whose uninstallation the operator deletes the DaemonSet. It is empty if somebody
	// else does, or if the DaemonSet is gone.
	CleanUp types.UID
}

// DaemonSetRemoval reads how a DaemonSet is removed. It counts as deleted when the API server keeps forbidding the read:
// `kubectl delete -k` deletes the daemon's rights and its DaemonSet in no particular order. After other errors, the
// request is repeated until ctx ends: a daemon that stops does not come back to try again.
func (c *Connection) DaemonSetRemoval(ctx context.Context, namespace, name string) (Removal, error) {
	var forbiddenSince time.Time
	for {
		removal, err := c.readRemoval(ctx, namespace, name)
		switch {
		case err == nil:
			return removal, nil
		case !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err):
			forbiddenSince = time.Time{}
		case forbiddenSince.IsZero():
			forbiddenSince = time.Now()
		case time.Since(forbiddenSince) > forbiddenGracePeriod:
			return Removal{Deleted: true}, nil
		}
		select {
		case <-ctx.Done():
			return Removal{}, fmt.Errorf("get DaemonSet %s/%s: %w", namespace, name, err)
		case <-time.After(forbiddenGracePeriod / 10):
		}
	}
}

// readRemoval makes one attempt.
func (c *Connection) readRemoval(ctx context.Context, namespace, name string) (Removal, error) {
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	ds := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet"}}
	err := c.Direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, ds)
	switch {
	case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse): // a proxy's answer has the cause
		return Removal{Deleted: true}, nil
	case err != nil, ds.DeletionTimestamp == nil:
		return Removal{}, err
	}
	return Removal{Deleted: true, CleanUp: types.UID(ds.Annotations[v1alpha1.CleanUpAnnotation])}, nil
}
