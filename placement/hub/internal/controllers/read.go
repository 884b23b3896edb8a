// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// read gets what is stored, and says whether the object concerns us at all.
func (p *pass) read(ctx context.Context) (bool, error) {
	meta := metadata(p.kind.GroupVersionKind)
	err := p.cached.Get(ctx, p.key.object(), meta)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("look for %s: %w", p.key, err)
	}
	if err == nil && !policy.PlaceableObject(p.key.GroupKind, p.key.Namespace, p.key.Name) {
		return false, nil
	}
	p.record = &v1alpha1.Assignment{}
	if err := p.cached.Get(ctx, p.key.assignment(), p.record); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("look for the Assignment of %s: %w", p.key, err)
	}
	if err = p.readWorks(ctx); err != nil {
		return false, err
	}
	if p.record.UID == "" && len(p.works) == 0 {
		concerned, err := p.concerns(ctx, meta)
		if err != nil || !concerned {
			return false, err
		}
	}
	return true, p.readObject(ctx)
}

// readObject reads the object itself: what is stored decides, not a cache.
func (p *pass) readObject(ctx context.Context) error {
	o := empty(p.kind.GroupVersionKind)
	err := p.direct.Get(ctx, p.key.object(), o)
	if absent(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", p.key, err)
	}
	p.object = o
	return nil
}

// absent says that the API server knows of no such object. When it does not serve the kind
// (a version that is switched off, an extension that is away) its answer is 404, too, and
// says nothing of the object.
func absent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// alive says that the object is there and to stay.
func (p *pass) alive() bool { return p.object != nil && p.object.GetDeletionTimestamp() == nil }
