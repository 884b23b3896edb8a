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
	// authorizedTTL is how long a permission is remembered: with thousands of nodes, two requests
	// for each scrape would be a load. A revoked token reads metrics for as long.
	authorizedTTL = 5 * time.Minute
	// authorizedTTLUnreachable is how long a permission is remembered while the API server is
	// unreachable, when metrics matter most.
	authorizedTTLUnreachable = time.Hour
	// reviewTimeout bounds the reviews of one request. Prometheus' scrapes have a timeout of 10 s.
	reviewTimeout = 5 * time.Second
	// reviewsPerSecond bounds the reviews for clients with unknown tokens, and separately those for
	// clients that were allowed before, so that the former cannot use up what the latter need.
	reviewsPerSecond = 10
	// reviewsPerClient bounds the reviews for unknown tokens of one client address. Addresses share
	// clientLimiterCount limiters by a seeded hash, which they cannot predict.
	reviewsPerClient   = 3
	clientLimiterCount = 256
)

// errTooManyReviews is returned when a limit is reached. It is not an answer of the API server:
// otherwise a client that invents tokens could keep a revoked one alive.
var errTooManyReviews = errors.New("too many clients are being authorized")

// denial is the API server's answer that a client may not read.
type denial struct {
	code   int
	reason string
}

// Error implements error.
func (d denial) Error() string { return d.reason }

// authorizer asks the API server who a client is, and whether it may get a path.
type authorizer struct {
	tokens authentication.TokenReviewInterface
	access authorization.SubjectAccessReviewInterface
	now    func() time.Time
	// knownLimiter and unknownLimiter limit the reviews of clients that were allowed before, and of
	// others.
	knownLimiter, unknownLimiter *rate.Limiter
	// clientLimiters limit the latter by client address.
	clientLimiters [clientLimiterCount]*rate.Limiter
	seed           maphash.Seed

	mu sync.Mutex
	// allowed is when a permission was granted. Denials are not remembered, because a client can
	// invent any number of tokens.
	allowed map[permission]time.Time
}

// permission is a path and the digest of the token that may get it.
type permission struct {
	token [sha256.Size]byte
	path  string
}

// newAuthorizer returns an authorizer that sends reviews with the account of cfg.
func newAuthorizer(cfg *rest.Config) (*authorizer, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.RateLimiter, cfg.Timeout = -1, nil, reviewTimeout // authorize limits the reviews itself
	tokens, err := authentication.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client for TokenReviews: %w", err)
	}
	access, err := authorization.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client for SubjectAccessReviews: %w", err)
	}
	a := &authorizer{
		tokens: tokens.TokenReviews(), access: access.SubjectAccessReviews(), now: time.Now,
		knownLimiter:   rate.NewLimiter(reviewsPerSecond, reviewsPerSecond),
		unknownLimiter: rate.NewLimiter(reviewsPerSecond, reviewsPerSecond),
		seed:           maphash.MakeSeed(),
		allowed:        map[permission]time.Time{},
	}
	for i := range a.clientLimiters {
		a.clientLimiters[i] = rate.NewLimiter(reviewsPerClient, reviewsPerClient)
	}
	return a, nil
}

// authorize returns nil if the token's owner may get the path, a denial if not, errTooManyReviews
// when a limit is reached, and another error if the API server does not answer. Client is the
// address that the token comes from.
func (a *authorizer) authorize(ctx context.Context, client, token, path string) error {
	if token == "" {
		return denial{http.StatusUnauthorized, "the request must have a bearer token"}
	}
	p := permission{sha256.Sum256([]byte(token)), path}
	a.mu.Lock()
	since, known := a.allowed[p]
	a.mu.Unlock()
	if known && a.now().Sub(since) < authorizedTTL {
		return nil
	}
	if !a.takeReview(client, known) {
		return errTooManyReviews
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	err := a.requestReviews(ctx, token, path)
	if _, denied := errors.AsType[denial](err); err != nil && !denied {
		if known && a.now().Sub(since) < authorizedTTLUnreachable {
			return nil
		}
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.allowed, func(_ permission, since time.Time) bool { return a.now().Sub(since) >= authorizedTTLUnreachable })
	delete(a.allowed, p)
	if err == nil {
		a.allowed[p] = a.now()
	}
	return err
}

// takeReview reports whether the limits allow a review, and counts it.
func (a *authorizer) takeReview(client string, known bool) bool {
	now := a.now()
	if known {
		return a.knownLimiter.AllowN(now, 1)
	}
	return a.clientLimiter(client).AllowN(now, 1) && a.unknownLimiter.AllowN(now, 1)
}

// clientLimiter returns the limiter that an address shares with some others.
func (a *authorizer) clientLimiter(client string) *rate.Limiter {
	return a.clientLimiters[maphash.String(a.seed, client)%clientLimiterCount]
}

// requestReviews sends a TokenReview and a SubjectAccessReview.
func (a *authorizer) requestReviews(ctx context.Context, token, path string) error {
	t, err := a.tokens.Create(ctx, &authenticationapi.TokenReview{
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
	access, err := a.access.Create(ctx, &authorizationapi.SubjectAccessReview{Spec: authorizationapi.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationapi.NonResourceAttributes{Path: path, Verb: "get"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create SubjectAccessReview: %w", err)
	}
	if !access.Status.Allowed {
		return denial{http.StatusForbidden, fmt.Sprintf("user %s must have the right to get the non-resource URL %s", user.Username, path)}
	}
	return nil
}
