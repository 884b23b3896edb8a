// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// remove takes everything of ours from a Service that has none, or is none any more.
// The cache of a new leader may be older than what the former one has seen: so the
// Service itself is asked before.
func (r *Reconciler) remove(ctx context.Context, key client.ObjectKey) error {
	existing, err := r.slices(ctx, key)
	if err != nil {
		return err
	}
	endpoints, err := r.endpoints(ctx, key)
	if err != nil || len(existing) == 0 && endpoints == nil {
		return err
	}
	if ours, err := r.ours(ctx, key); err != nil || ours {
		return err // the cache will say so too
	}
	if err := r.write(ctx, &svcwatcher.Changes{Delete: existing}); err != nil {
		return err
	}
	return r.withdraw(ctx, endpoints)
}

// ours asks the API server whether a Service is one that has, or keeps, something of
// ours. What lost the label that names its Service is no Service's.
func (r *Reconciler) ours(ctx context.Context, key client.ObjectKey) (bool, error) {
	if key.Name == "" {
		return false, nil
	}
	svc := &corev1.Service{}
	if err := r.direct.Get(ctx, key, svc); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("get Service: %w", err)
	}
	v := svcwatcher.Judge(svc).Verdict
	return v == svcwatcher.Served || v == svcwatcher.Broken, nil
}
