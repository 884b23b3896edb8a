// SPDX-License-Identifier: Apache-2.0

package debugapi

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Bounds of SubjectAccessReviews, so that people cannot keep the API server from the hub's own work.
const (
	// maxReviews is how many there are at a time. More wait.
	maxReviews    = 20
	reviewTimeout = 10 * time.Second
	// allowedLifetime is how long an answer counts that allows something. A refusal is asked again at once.
	allowedLifetime = 10 * time.Second
	allowedAnswers  = 10_000
)

// reviewer asks the API server whether RBAC allows something.
type reviewer struct {
	reviews authorization.SubjectAccessReviewInterface
	slots   chan struct{}
	allowed *cache.LRUExpireCache // by the spec of the review
}

func newReviewer(reviews authorization.SubjectAccessReviewInterface) *reviewer {
	return &reviewer{reviews: reviews, slots: make(chan struct{}, maxReviews), allowed: cache.NewLRUExpireCache(allowedAnswers)}
}

// review returns an error unless RBAC allows a user a verb.
func (r *reviewer) review(ctx context.Context, u user, t target, verb string) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: u.name, UID: u.uid, Groups: u.groups, Extra: u.extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: v1alpha1.DebugGroup, Version: v1alpha1.DebugVersion, Resource: "clusters", Subresource: t.subresource,
			Namespace: t.namespace, Name: t.cluster, Verb: verb,
		},
	}}
	key, err := json.Marshal(review.Spec)
	if err != nil {
		return fmt.Errorf("encode a review: %w", err)
	}
	if _, allowed := r.allowed.Get(string(key)); allowed {
		return nil
	}
	answer, err := r.ask(ctx, review)
	if err != nil {
		return fmt.Errorf("ask the API server what user %s may do: %w", u.name, err)
	}
	if !answer.Status.Allowed {
		return apierrors.NewForbidden(resource("clusters/"+t.subresource), t.cluster,
			fmt.Errorf("user %s must have the verb %s on clusters/%s of the group %s", u.name, verb, t.subresource, v1alpha1.DebugGroup))
	}
	r.allowed.Add(string(key), true, allowedLifetime)
	return nil
}

func (r *reviewer) ask(ctx context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
		return r.reviews.Create(ctx, review, metav1.CreateOptions{})
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
