// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// How often the keeper looks: soon until all is in place, then now and then.
const (
	syncRetryInterval = time.Second
	syncInterval      = 10 * time.Second
)

// Config says where the certificates are and who trusts them.
type Config struct {
	// Client reads from the API server, past any cache.
	Client client.Client
	// Namespace and Secret name where they are kept.
	Namespace, Secret string
	// Hosts are the server's names and addresses, such as
	// patchbay-webhook.patchbay-system.svc.
	Hosts []string
	// Mutating and Validating are the names of the webhook configurations.
	Mutating, Validating []string
	// Log takes what goes wrong.
	Log logr.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Rotator keeps certificates. Every replica runs one.
type Rotator struct {
	cfg        Config
	serving    atomic.Pointer[tls.Certificate]
	tokens     atomic.Pointer[[]token]
	caInjected atomic.Bool
}

// NewRotator returns a Keeper that works with Start.
func NewRotator(cfg Config) *Rotator {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Rotator{cfg: cfg}
}

// NeedLeaderElection says that every replica keeps its own certificate fresh.
func (k *Rotator) NeedLeaderElection() bool { return false }

// Start keeps the certificates until ctx ends.
func (k *Rotator) Start(ctx context.Context) error {
	for {
		wait := syncInterval
		if err := k.Sync(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Log.Error(err, "Keep the webhook's certificates")
			wait = syncRetryInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Sync does once what is to be done: renew, serve, and have it trusted. The order
// matters: what is served next is stored, so that all replicas serve the same.
func (k *Rotator) Sync(ctx context.Context) error {
	c, err := k.syncSecret(ctx)
	if err != nil {
		return err
	}
	if err := k.injectAll(ctx, c); err != nil {
		return err
	}
	k.caInjected.Store(true)
	return nil
}

// syncSecret reads the Secret, brings it up to date and serves what is in it.
func (k *Rotator) syncSecret(ctx context.Context) (credentials, error) {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: k.cfg.Namespace, Name: k.cfg.Secret}
	err := k.cfg.Client.Get(ctx, key, &secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return credentials{}, fmt.Errorf("read Secret %s: %w", key, err)
	}
	now, err := parseSecretData(secret.Data)
	if err != nil && !missing {
		k.cfg.Log.Error(err, "The Secret of the webhook's certificates cannot be read; making them anew", "secret", key)
	}
	next, changed, err := now.renew(k.cfg.Hosts, k.cfg.Now())
	if err != nil {
		return credentials{}, err
	}
	if changed {
		if err := k.writeSecret(ctx, &secret, missing, next); err != nil {
			return credentials{}, err // another replica was first: read again
		}
	}
	k.serving.Store(next.tlsCertificate())
	k.tokens.Store(&next.tokens)
	return next, nil
}

func (k *Rotator) writeSecret(ctx context.Context, secret *corev1.Secret, create bool, c credentials) error {
	data, err := c.secretData()
	if err != nil {
		return err
	}
	secret.Data = data
	if create {
		secret.ObjectMeta = metav1.ObjectMeta{
			Namespace: k.cfg.Namespace, Name: k.cfg.Secret, Labels: map[string]string{"app.kubernetes.io/part-of": "patchbay"},
		}
		secret.Type = corev1.SecretTypeTLS
		err = k.cfg.Client.Create(ctx, secret)
	} else {
		err = k.cfg.Client.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", k.cfg.Namespace, k.cfg.Secret, err)
	}
	return nil
}

// injectAll has the authorities trusted by all webhook configurations. One that is not there
// is an error, told again and again: it may be installed later.
func (k *Rotator) injectAll(ctx context.Context, now credentials) error {
	var failed []error
	token := now.publishedToken(k.cfg.Now())
	for _, name := range k.cfg.Mutating {
		var c admissionv1.MutatingWebhookConfiguration
		failed = append(failed, k.updateConfiguration(ctx, name, &c, func() bool {
			changed := false
			for i := range c.Webhooks {
				changed = now.injectInto(c.Webhooks[i].Name, token, &c.Webhooks[i].ClientConfig) || changed
			}
			return changed
		}))
	}
	for _, name := range k.cfg.Validating {
		var c admissionv1.ValidatingWebhookConfiguration
		failed = append(failed, k.updateConfiguration(ctx, name, &c, func() bool {
			changed := false
			for i := range c.Webhooks {
				changed = now.injectInto(c.Webhooks[i].Name, token, &c.Webhooks[i].ClientConfig) || changed
			}
			return changed
		}))
	}
	return errors.Join(failed...)
}

// updateConfiguration reads a configuration and writes it when change says so. A conflict is an
// error: the keeper looks again soon.
func (k *Rotator) updateConfiguration(ctx context.Context, name string, obj client.Object, change func() bool) error {
	if err := k.cfg.Client.Get(ctx, client.ObjectKey{Name: name}, obj); err != nil {
		return fmt.Errorf("read webhook configuration %s: %w", name, err)
	}
	if !change() {
		return nil
	}
	if err := k.cfg.Client.Update(ctx, obj); err != nil {
		return fmt.Errorf("put the certificate authority into webhook configuration %s: %w", name, err)
	}
	return nil
}

// Ready reports whether there is a certificate to serve.
func (k *Rotator) Ready() bool { return k.serving.Load() != nil }

// CAInjected reports whether all webhook configurations have been up to date once.
func (k *Rotator) CAInjected() bool { return k.caInjected.Load() }

// ErrNotReady says that there is no certificate yet.
var ErrNotReady = errors.New("the webhook's certificate is not made yet")

// GetCertificate is a tls.Config's GetCertificate.
func (k *Rotator) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c := k.serving.Load()
	if c == nil {
		return nil, ErrNotReady
	}
	return c, nil
}

// RequireToken lets through who asks for /<webhook's name>/<token>. API servers have no client
// certificate unless somebody gives them one, and any Pod can reach the Service: it
// should not be able to reserve IDs, or to ask what other tenants have.
//
// That is a mitigation, not a lock. Who may read the webhook configurations knows the
// token, and an API server that gets no answer names the whole URL in the error that
// its user sees. So the token changes every hour, and the one before is accepted until
// no API server can have it; and the handlers trust no request where they write. What
// closes it are client certificates for the API server (an AdmissionConfiguration with
// a kubeConfigFile), or a network policy or firewall that lets API servers alone reach
// the port.
func (k *Rotator) RequireToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !k.acceptsToken(path.Base(r.URL.Path)) {
			http.Error(w, "ask through the API server", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// acceptsToken takes the same time whichever token it is.
func (k *Rotator) acceptsToken(text string) bool {
	tokens := k.tokens.Load()
	if tokens == nil {
		return false
	}
	found := 0
	for _, t := range *tokens {
		found |= subtle.ConstantTimeCompare([]byte(text), []byte(t.text))
	}
	return found == 1
}
