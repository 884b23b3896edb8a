// SPDX-License-Identifier: Apache-2.0

package servingcert

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

// The rotator syncs often until everything is in place, and then at syncInterval.
const (
	syncRetryInterval = time.Second
	syncInterval      = 10 * time.Second
)

// Config configures a Rotator.
type Config struct {
	// Client has no cache.
	Client client.Client
	// Namespace and Secret name the Secret with the credentials.
	Namespace, Secret string
	// Hosts are the server's names and addresses, such as patchbay-webhook.patchbay-system.svc.
	Hosts []string
	// Mutating and Validating are the names of the webhook configurations.
	Mutating, Validating []string
	// Publish writes the bundle of authorities where an API server finds it, if that is not a webhook
	// configuration. It is called at each sync, also when nothing has changed. May be nil.
	Publish func(ctx context.Context, caBundle []byte) error
	// Log gets errors.
	Log logr.Logger
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// hasWebhooks tells whether the server has webhooks, whose paths contain tokens.
func (c Config) hasWebhooks() bool { return len(c.Mutating)+len(c.Validating) > 0 }

// Rotator creates, injects and renews the credentials. Every replica runs one.
type Rotator struct {
	cfg        Config
	serving    atomic.Pointer[tls.Certificate]
	tokens     atomic.Pointer[[]token]
	caInjected atomic.Bool
}

// NewRotator returns a Rotator that runs with Start.
func NewRotator(cfg Config) *Rotator {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Rotator{cfg: cfg}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves the present
// certificate.
func (r *Rotator) NeedLeaderElection() bool { return false }

// Start syncs until ctx ends.
func (r *Rotator) Start(ctx context.Context) error {
	for {
		wait := syncInterval
		if err := r.Sync(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Log.Error(err, "Failed to sync the serving certificates")
			wait = syncRetryInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Sync renews the credentials, serves them, and injects them. It stores new credentials before it
// serves them, so that all replicas serve the same.
func (r *Rotator) Sync(ctx context.Context) error {
	c, err := r.syncSecret(ctx)
	if err != nil {
		return err
	}
	if err := r.injectAll(ctx, c); err != nil {
		return err
	}
	r.caInjected.Store(true)
	return nil
}

// syncSecret reads the Secret, renews it, and serves its content.
func (r *Rotator) syncSecret(ctx context.Context) (credentials, error) {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: r.cfg.Namespace, Name: r.cfg.Secret}
	err := r.cfg.Client.Get(ctx, key, &secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return credentials{}, fmt.Errorf("read Secret %s: %w", key, err)
	}
	present, err := parseSecretData(secret.Data)
	if err != nil && !missing {
		r.cfg.Log.Error(err, "Failed to read the serving certificates, creating new ones", "secret", key)
	}
	present.noTokens = !r.cfg.hasWebhooks()
	next, changed, err := present.renew(r.cfg.Hosts, r.cfg.Now())
	if err != nil {
		return credentials{}, err
	}
	if changed {
		if err := r.writeSecret(ctx, &secret, missing, next); err != nil {
			return credentials{}, err // for a conflict, another replica was first
		}
	}
	r.serving.Store(next.tlsCertificate())
	r.tokens.Store(&next.tokens)
	return next, nil
}

func (r *Rotator) writeSecret(ctx context.Context, secret *corev1.Secret, create bool, c credentials) error {
	data, err := c.secretData()
	if err != nil {
		return err
	}
	secret.Data = data
	if create {
		secret.ObjectMeta = metav1.ObjectMeta{
			Namespace: r.cfg.Namespace, Name: r.cfg.Secret, Labels: map[string]string{"app.kubernetes.io/part-of": "patchbay"},
		}
		secret.Type = corev1.SecretTypeTLS
		err = r.cfg.Client.Create(ctx, secret)
	} else {
		err = r.cfg.Client.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", r.cfg.Namespace, r.cfg.Secret, err)
	}
	return nil
}

// injectAll injects the authorities into all webhook configurations. A missing configuration is an
// error that is logged again and again, because it may be installed later.
func (r *Rotator) injectAll(ctx context.Context, now credentials) error {
	var failed []error
	if r.cfg.Publish != nil {
		failed = append(failed, r.cfg.Publish(ctx, now.caBundle()))
	}
	if !r.cfg.hasWebhooks() {
		return errors.Join(failed...)
	}
	token := now.publishedToken(r.cfg.Now())
	for _, name := range r.cfg.Mutating {
		var c admissionv1.MutatingWebhookConfiguration
		failed = append(failed, r.updateConfiguration(ctx, name, &c, func() bool {
			changed := false
			for i := range c.Webhooks {
				changed = now.injectInto(c.Webhooks[i].Name, token, &c.Webhooks[i].ClientConfig) || changed
			}
			return changed
		}))
	}
	for _, name := range r.cfg.Validating {
		var c admissionv1.ValidatingWebhookConfiguration
		failed = append(failed, r.updateConfiguration(ctx, name, &c, func() bool {
			changed := false
			for i := range c.Webhooks {
				changed = now.injectInto(c.Webhooks[i].Name, token, &c.Webhooks[i].ClientConfig) || changed
			}
			return changed
		}))
	}
	return errors.Join(failed...)
}

// updateConfiguration reads a configuration, and writes it if change reports a change. A conflict
// is an error: the next sync follows soon.
func (r *Rotator) updateConfiguration(ctx context.Context, name string, obj client.Object, change func() bool) error {
	if err := r.cfg.Client.Get(ctx, client.ObjectKey{Name: name}, obj); err != nil {
		return fmt.Errorf("read webhook configuration %s: %w", name, err)
	}
	if !change() {
		return nil
	}
	if err := r.cfg.Client.Update(ctx, obj); err != nil {
		return fmt.Errorf("inject the certificate authority into webhook configuration %s: %w", name, err)
	}
	return nil
}

// Ready reports whether there is a certificate to serve.
func (r *Rotator) Ready() bool { return r.serving.Load() != nil }

// NotAfter returns the end of the serving certificate's lifetime. It is zero before the first Sync.
func (r *Rotator) NotAfter() time.Time {
	if c := r.serving.Load(); c != nil && c.Leaf != nil {
		return c.Leaf.NotAfter
	}
	return time.Time{}
}

// CAInjected reports whether all webhook configurations have been up to date once.
func (r *Rotator) CAInjected() bool { return r.caInjected.Load() }

// ErrNotReady is returned until there is a certificate.
var ErrNotReady = errors.New("the serving certificate is not created yet")

// GetCertificate is a tls.Config's GetCertificate.
func (r *Rotator) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c := r.serving.Load()
	if c == nil {
		return nil, ErrNotReady
	}
	return c, nil
}

// RequireToken passes on requests for /<webhook's name>/<token>, and rejects others. API servers
// have no client certificate unless an administrator gives them one, and every Pod can reach the
// Service: a Pod must not be able to reserve IDs, or to learn what other tenants use.
//
// This is a mitigation, not a lock. Everyone who may read the webhook configurations knows the
// token, and an API server that gets no answer returns the whole URL in its error. Therefore the
// token changes every hour, the one before is accepted until no API server can have it, and
// handlers do not trust requests when they write. Client certificates for the API server (an
// AdmissionConfiguration with a kubeConfigFile), or a network policy or firewall that lets only API
// servers reach the port, close the gap.
func (r *Rotator) RequireToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !r.acceptsToken(path.Base(req.URL.Path)) {
			http.Error(w, "only the API server may call this webhook", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// acceptsToken compares in constant time.
func (r *Rotator) acceptsToken(text string) bool {
	tokens := r.tokens.Load()
	if tokens == nil {
		return false
	}
	found := 0
	for _, t := range *tokens {
		found |= subtle.ConstantTimeCompare([]byte(text), []byte(t.text))
	}
	return found == 1
}
