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

// Lifetime and renewal of tokens.
const (
	// tokenLifetime is the requested lifetime, so that a hub may be unreachable for a weekend. The hub may
	// issue a shorter one.
	tokenLifetime = 72 * time.Hour
	// A token is renewed after minRenewInterval at the earliest, and maxRenewInterval at the latest.
	maxRenewInterval, minRenewInterval = time.Hour, time.Minute
	// The delay after a failure grows from minRetryDelay to maxRetryDelay.
	minRetryDelay, maxRetryDelay = time.Second, 10 * time.Second
	// tokenRequestTimeout bounds one renewal.
	tokenRequestTimeout = 30 * time.Second
)

// TokenCredentials are an agent's ServiceAccount tokens at the hub, which renew themselves. They work behind
// a load balancer that terminates TLS, where the API server gets no client certificate. They implement
// credential.
type TokenCredentials struct {
	cluster         string
	joinToken       string
	store           tokenStore
	anonymousConfig *rest.Config // no credential
	restConfig      *rest.Config
	upgradeConfig   *rest.Config
	renewNow        chan struct{} // after the hub has rejected the token

	mu        sync.Mutex
	token     string
	available chan struct{} // closed when there is a token
}

// NewTokenCredentials reads the stored token, if there is one. It fails when the cluster's own API server is
// unreachable.
func NewTokenCredentials(ctx context.Context, c Config) (*TokenCredentials, error) {
	w, err := newHubTransport(c.Hub)
	if err != nil {
		return nil, err
	}
	transport := w.roundTripper(dialWithKeepAlive)
	t := &TokenCredentials{
		cluster: c.Cluster, joinToken: c.Hub.BearerToken, store: tokenStore{secrets: c.Secrets, name: c.Secret},
		anonymousConfig: w.restConfig(transport), renewNow: make(chan struct{}, 1), available: make(chan struct{}),
	}
	t.restConfig = w.restConfig(&credentialTransport{credential: t, next: transport})
	t.upgradeConfig = w.upgradeConfig(t)
	stored, err := t.store.readToken(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case stored != "":
		t.setToken(stored)
	case t.joinToken == "":
		return nil, fmt.Errorf("join as cluster %s: the hub's kubeconfig has no token, and Secret %s has none: get one with `kubectl patchbay hub token %s`",
			c.Cluster, c.Secret, c.Cluster)
	}
	return t, nil
}

// RESTConfig returns the client configuration for the hub. Its requests wait for the first token.
func (t *TokenCredentials) RESTConfig() *rest.Config { return t.restConfig }

// UpgradeConfig returns the client configuration for requests that upgrade their connection.
func (t *TokenCredentials) UpgradeConfig() *rest.Config { return t.upgradeConfig }

// Run gets the first token and renews it until the context ends.
func (t *TokenCredentials) Run(ctx context.Context) {
	retry := newRetryBackoff()
	for ctx.Err() == nil {
		next, err := t.renew(ctx)
		if err == nil {
			retry = newRetryBackoff()
			t.waitForRenewal(ctx, wait.Jitter(next/2, 1))
			continue
		}
		logr.FromContextOrDiscard(ctx).Info("Failed to get a token for the hub; retrying", "cluster", t.cluster, "cause", err.Error())
		select {
		case <-time.After(retry.Step()):
		case <-ctx.Done():
		}
	}
}

func newRetryBackoff() wait.Backoff {
	return wait.Backoff{Duration: minRetryDelay, Factor: 2, Jitter: 0.5, Steps: 100, Cap: maxRetryDelay}
}

// waitForRenewal waits until a token is due for renewal. After a rejection by the hub it waits for
// minRetryDelay only.
func (t *TokenCredentials) waitForRenewal(ctx context.Context, long time.Duration) {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-t.renewNow:
		select {
		case <-time.After(minRetryDelay):
		case <-ctx.Done():
		}
	case <-timer.C:
	case <-ctx.Done():
	}
}

// renew gets a token with the present one, or with the join token if there is none or the hub rejects it.
// It returns when to renew the new token.
func (t *TokenCredentials) renew(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenRequestTimeout)
	defer cancel()
	present, _ := t.currentToken()
	answer, err := t.requestToken(ctx, cmp.Or(present, t.joinToken))
	if present != "" && t.joinToken != "" && apierrors.IsUnauthorized(err) {
		answer, err = t.requestToken(ctx, t.joinToken)
	}
	if apierrors.IsUnauthorized(err) {
		return 0, fmt.Errorf("the join token must be valid, and not expired: get another one with `kubectl patchbay hub token %s`: %w", t.cluster, err)
	}
	if err != nil {
		return 0, err
	}
	err = t.store.writeToken(ctx, answer.Token)
	t.setToken(answer.Token) // valid even if it is not stored
	if err != nil {
		return 0, err
	}
	// If this clock is ahead of the hub's, the token may seem to have expired.
	return max(minRenewInterval, min(maxRenewInterval, time.Until(answer.ExpirationTimestamp.Time)*2/3)), nil
}

// requestToken requests a token of the agent's ServiceAccount, authenticated by another token.
func (t *TokenCredentials) requestToken(ctx context.Context, token string) (authenticationv1.TokenRequestStatus, error) {
	config := rest.CopyConfig(t.anonymousConfig)
	config.BearerToken = token
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
		return authenticationv1.TokenRequestStatus{}, fmt.Errorf("get token of ServiceAccount %s/%s: the answer has no token: check that the address is the hub's",
			namespace, v1alpha1.AgentAccount)
	}
	return answer.Status, nil
}

// currentToken returns the present token, and a channel that is closed when there is one.
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

// wait implements credential.
func (t *TokenCredentials) wait(ctx context.Context) error {
	_, available := t.currentToken()
	select {
	case <-available:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// authorize implements credential.
func (t *TokenCredentials) authorize(r *http.Request) *http.Request {
	token, _ := t.currentToken()
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// rejected implements credential.
func (t *TokenCredentials) rejected() {
	select {
	case t.renewNow <- struct{}{}:
	default: // a renewal is due already
	}
}

// tokenStore stores the token in a Secret, for an agent that starts while the hub is unreachable, or after
// the join token has expired.
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
