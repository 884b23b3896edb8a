// SPDX-License-Identifier: Apache-2.0

package securemetrics

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	authenticationapi "k8s.io/api/authentication/v1"
	authorizationapi "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// Times and rates of reviews.
const (
	// authorizedTTL is how long a client is not reviewed again: with thousands of nodes two
	// requests for each scrape would be a load. A token that was revoked reads metrics
	// for as long.
	authorizedTTL = 5 * time.Minute
	// authorizedTTLUnreachable is how long a permission lasts while the API server does not answer:
	// then metrics are wanted most.
	authorizedTTLUnreachable = time.Hour
	// reviewTimeout bounds one request; scrapes have 10 s.
	reviewTimeout = 5 * time.Second
	// reviewsPerSecond bounds what clients with made-up tokens cost the API server, and again
	// what those cost that were allowed before: the former cannot use up what the latter need.
	reviewsPerSecond = 10
	// reviewsPerClient bounds what one address uses up of that for the former. Addresses
	// share clientShares limiters, by a hash that they cannot foresee.
	reviewsPerClient   = 3
	clientLimiterCount = 256
)

// errTooManyReviews says that too many clients are to be reviewed. It is no answer of the API server: a
// client that makes up tokens could else keep one alive that was revoked.
var errTooManyReviews = errors.New("too many clients are reviewed")

// denial is the API server's answer that a client may not read.
type denial struct {
	code   int
	reason string
}

// Error implements error.
func (d denial) Error() string { return d.reason }

// authorizer ask the API server who a client is and whether it may get a path.
type authorizer struct {
	tokens authentication.TokenReviewInterface
	access authorization.SubjectAccessReviewInterface
	now    func() time.Time
	// knownLimiter and unknown limit reviews of clients that were allowed before, and of others.
	knownLimiter, unknownLimiter *rate.Limiter
	// clientLimiters limit those of unknown by client.
	clientLimiters [clientLimiterCount]*rate.Limiter
	seed           maphash.Seed

	mu sync.Mutex
	// allowed is when a permission was given. Denials are not remembered: a client
	// can make up any number of tokens.
	allowed map[permission]time.Time
}

// permission is a path for whoever has a token, of which only the digest is kept.
type permission struct {
	token [sha256.Size]byte
	path  string
}

// newAuthorizer asks as the account of cfg.
func newAuthorizer(cfg *rest.Config) (*authorizer, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.RateLimiter, cfg.Timeout = -1, nil, reviewTimeout // reviews are limited before they start
	tokens, err := authentication.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client for TokenReviews: %w", err)
	}
	access, err := authorization.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client for SubjectAccessReviews: %w", err)
	}
	r := &authorizer{
		tokens: tokens.TokenReviews(), access: access.SubjectAccessReviews(), now: time.Now,
		knownLimiter:   rate.NewLimiter(reviewsPerSecond, reviewsPerSecond),
		unknownLimiter: rate.NewLimiter(reviewsPerSecond, reviewsPerSecond),
		seed:           maphash.MakeSeed(),
		allowed:        map[permission]time.Time{},
	}
	for i := range r.clientLimiters {
		r.clientLimiters[i] = rate.NewLimiter(reviewsPerClient, reviewsPerClient)
	}
	return r, nil
}

// authorize returns nil if the token's owner may get the path, a denial if not, errBusy if there
// are too many to review, and another error if the API server does not answer. Client is the
// address that the token comes from.
func (r *authorizer) authorize(ctx context.Context, client, token, path string) error {
	if token == "" {
		return denial{http.StatusUnauthorized, "want a bearer token"}
	}
	p := permission{sha256.Sum256([]byte(token)), path}
	r.mu.Lock()
	since, known := r.allowed[p]
	r.mu.Unlock()
	if known && r.now().Sub(since) < authorizedTTL {
		return nil
	}
	if !r.takeReview(client, known) {
		return errTooManyReviews
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	err := r.requestReviews(ctx, token, path)
	if _, denied := errors.AsType[denial](err); err != nil && !denied {
		if known && r.now().Sub(since) < authorizedTTLUnreachable {
			return nil
		}
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.allowed, func(_ permission, since time.Time) bool { return r.now().Sub(since) >= authorizedTTLUnreachable })
	delete(r.allowed, p)
	if err == nil {
		r.allowed[p] = r.now()
	}
	return err
}

// takeReview takes a review of a client out of the budgets, if they have one left.
func (r *authorizer) takeReview(client string, known bool) bool {
	now := r.now()
	if known {
		return r.knownLimiter.AllowN(now, 1)
	}
	return r.clientLimiter(client).AllowN(now, 1) && r.unknownLimiter.AllowN(now, 1)
}

// clientLimiter is the limiter that an address has with some others.
func (r *authorizer) clientLimiter(client string) *rate.Limiter {
	return r.clientLimiters[maphash.String(r.seed, client)%clientLimiterCount]
}

// requestReviews sends both reviews.
func (r *authorizer) requestReviews(ctx context.Context, token, path string) error {
	t, err := r.tokens.Create(ctx, &authenticationapi.TokenReview{
		Spec: authenticationapi.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create TokenReview: %w", err)
	}
	if !t.Status.Authenticated {
		return denial{http.StatusUnauthorized, "the token is not valid"}
	}
	user := t.Status.User
	extra := make(map[string]authorizationapi.ExtraValue, len(user.Extra))
	for k, v := range user.Extra {
		extra[k] = authorizationapi.ExtraValue(v)
	}
	a, err := r.access.Create(ctx, &authorizationapi.SubjectAccessReview{Spec: authorizationapi.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationapi.NonResourceAttributes{Path: path, Verb: "get"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create SubjectAccessReview: %w", err)
	}
	if !a.Status.Allowed {
		return denial{http.StatusForbidden, fmt.Sprintf("user %s must have the right to get the non-resource URL %s", user.Username, path)}
	}
	return nil
}
