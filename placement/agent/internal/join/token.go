// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Times of tokens.
const (
	// tokenLifetime is asked for, so that a hub may be away for a weekend; it may give less.
	tokenLifetime = 72 * time.Hour
	// maxRenewInterval is when a token is renewed at the latest, tokenRenewLeast at the earliest.
	maxRenewInterval, minRenewInterval = time.Hour, time.Minute
	// minRetryDelay is how long to wait after a failure at first, tokenRetryLast at last.
	minRetryDelay, maxRetryDelay = time.Second, 10 * time.Second
	// tokenRequestTimeout bounds one request for a token.
	tokenRequestTimeout = 30 * time.Second
)

// TokenCredentials are an agent's ServiceAccount tokens at the hub: for where a balancer ends TLS,
// so that no certificate of a client gets to the API server.
type TokenCredentials struct {
	cluster         string
	joinToken       string
	store           tokenStore
	anonymousConfig *rest.Config // no credential
	restConfig      *rest.Config
	rejected        chan struct{}

	mu        sync.Mutex
	token     string
	available chan struct{} // closed once there is a token
}

// NewTokenCredentials reads the stored token, if there is one. It fails when the cluster's own API
// server is away.
func NewTokenCredentials(ctx context.Context, c Config) (*TokenCredentials, error) {
	w, err := newHubTransport(c.Hub)
	if err != nil {
		return nil, err
	}
	transport := w.roundTripper(dialWithKeepAlive)
	t := &TokenCredentials{
		cluster: c.Cluster, joinToken: c.Hub.BearerToken, store: tokenStore{secrets: c.Secrets, name: c.Secret},
		anonymousConfig: w.restConfig(transport), rejected: make(chan struct{}, 1), available: make(chan struct{}),
	}
	t.restConfig = w.restConfig(&bearerTransport{tokens: t, next: transport})
	stored, err := t.store.readToken(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case stored != "":
		t.setToken(stored)
	case t.joinToken == "":
		return nil, fmt.Errorf("join as cluster %s: the hub's kubeconfig has no token, and Secret %s keeps none: get one with `kubectl patchbay hub token %s`",
			c.Cluster, c.Secret, c.Cluster)
	}
	return t, nil
}

// RESTConfig is the client configuration for the hub. Its requests wait for the first
// token.
func (t *TokenCredentials) RESTConfig() *rest.Config { return t.restConfig }

// Run gets the first token and renews it, until the context ends.
func (t *TokenCredentials) Run(ctx context.Context) {
	retry := newRetryBackoff()
	for ctx.Err() == nil {
		next, err := t.renew(ctx)
		if err == nil {
			retry = newRetryBackoff()
			t.waitForRenewal(ctx, wait.Jitter(next/2, 1))
			continue
		}
		logr.FromContextOrDiscard(ctx).Info("Cannot get a token for the hub; trying again", "cluster", t.cluster, "cause", err.Error())
		select {
		case <-time.After(retry.Step()):
		case <-ctx.Done():
		}
	}
}

func newRetryBackoff() wait.Backoff {
	return wait.Backoff{Duration: minRetryDelay, Factor: 2, Jitter: 0.5, Steps: 100, Cap: maxRetryDelay}
}

// waitForRenewal waits until a token is to be renewed, or the hub knows it no more: but not at once.
func (t *TokenCredentials) waitForRenewal(ctx context.Context, long time.Duration) {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-t.rejected:
		select {
		case <-time.After(minRetryDelay):
		case <-ctx.Done():
		}
	case <-timer.C:
	case <-ctx.Done():
	}
}

// renew gets a token with the present one or, where that is none, with the join token. It
// tells how soon the new one is to be renewed.
func (t *TokenCredentials) renew(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenRequestTimeout)
	defer cancel()
	present, _ := t.currentToken()
	answer, err := t.requestToken(ctx, cmp.Or(present, t.joinToken))
	if present != "" && t.joinToken != "" && apierrors.IsUnauthorized(err) {
		answer, err = t.requestToken(ctx, t.joinToken)
	}
	if apierrors.IsUnauthorized(err) {
		return 0, fmt.Errorf("there is no join token that is valid, or is still: get another with `kubectl patchbay hub token %s`: %w", t.cluster, err)
	}
	if err != nil {
		return 0, err
	}
	err = t.store.writeToken(ctx, answer.Token)
	t.setToken(answer.Token) // good all the same
	if err != nil {
		return 0, err
	}
	// By a clock ahead of the hub's the token may have run out already.
	return max(minRenewInterval, min(maxRenewInterval, time.Until(answer.ExpirationTimestamp.Time)*2/3)), nil
}

// requestToken asks for a token of the agent's account with a credential.
func (t *TokenCredentials) requestToken(ctx context.Context, with string) (authenticationv1.TokenRequestStatus, error) {
	config := rest.CopyConfig(t.anonymousConfig)
	config.BearerToken = with
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return authenticationv1.TokenRequestStatus{}, fmt.Errorf("make the hub's client: %w", err)
	}
	namespace := v1alpha1.ClusterNamespacePrefix + t.cluster
	answer, err := core.ServiceAccounts(namespace).CreateToken(ctx, v1alpha1.AgentAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenLifetime.Seconds()))},
	}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.TokenRequestStatus{}, fmt.Errorf("get token of ServiceAccount %s/%s (is the Cluster accepted?): %w",
			namespace, v1alpha1.AgentAccount, err)
	}
	if answer.Status.Token == "" {
		return authenticationv1.TokenRequestStatus{}, fmt.Errorf("get token of ServiceAccount %s/%s: the answer has none: is something else than the hub at its address?",
			namespace, v1alpha1.AgentAccount)
	}
	return answer.Status, nil
}

func (t *TokenCredentials) currentToken() (string, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.token, t.available
}

func (t *TokenCredentials) setToken(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token == "" {
		close(t.available)
	}
	t.token = token
}

// bearerTransport gives requests the present token; before the first they wait.
type bearerTransport struct {
	tokens *TokenCredentials
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	_, arrived := b.tokens.currentToken()
	select {
	case <-arrived:
	case <-r.Context().Done():
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, fmt.Errorf("await the hub's token: %w", r.Context().Err())
	}
	token, _ := b.tokens.currentToken()
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := b.next.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		select {
		case b.tokens.rejected <- struct{}{}:
		default: // known already
		}
	}
	return response, err
}

// tokenStore keeps the token in a Secret, for an agent that starts while the hub is away
// or the join token has run out.
type tokenStore struct {
	secrets corev1client.SecretInterface
	name    string
}

// readToken returns the token; "" when there is none.
func (s tokenStore) readToken(ctx context.Context) (string, error) {
	secret, err := s.secrets.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("get Secret %s: %w", s.name, err)
	}
	return string(secret.Data[corev1.ServiceAccountTokenKey]), nil
}

func (s tokenStore) writeToken(ctx context.Context, token string) error {
	return writeSecret(ctx, s.secrets, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.name}, Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token)},
	})
}
