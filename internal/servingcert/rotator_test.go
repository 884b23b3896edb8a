// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// api is the part of an API server that a Rotator uses.
type api struct {
	client.Client

	secret   *corev1.Secret
	hooks    admissionv1.ValidatingWebhookConfiguration
	missing  bool // the webhook configuration
	conflict int  // writes of the Secret to reject
	writes   int
}

func (a *api) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	switch o := obj.(type) {
	case *corev1.Secret:
		if a.secret == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
		}
		a.secret.DeepCopyInto(o)
	case *admissionv1.ValidatingWebhookConfiguration:
		if a.missing {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "validatingwebhookconfigurations"}, key.Name)
		}
		a.hooks.DeepCopyInto(o)
	}
	return nil
}

func (a *api) Create(ctx context.Context, obj client.Object, _ ...client.CreateOption) error {
	return a.Update(ctx, obj)
}

func (a *api) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	a.writes++
	switch o := obj.(type) {
	case *corev1.Secret:
		if a.conflict--; a.conflict >= 0 {
			return apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, o.Name, errors.New("another replica was first"))
		}
		a.secret = o.DeepCopy()
	case *admissionv1.ValidatingWebhookConfiguration:
		a.hooks = *o.DeepCopy()
	}
	return nil
}

// trusts verifies a server's certificate as the API server does.
func (a *api) trusts(rotator *Rotator, now time.Time) error {
	c, err := rotator.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.hooks.Webhooks[0].ClientConfig.CABundle)
	_, err = c.Leaf.Verify(x509.VerifyOptions{DNSName: hosts()[0], Roots: pool, CurrentTime: now})
	return err
}

func newWorld() (*api, func(clock *time.Time) *Rotator) {
	a := &api{}
	a.hooks.Webhooks = make([]admissionv1.ValidatingWebhook, 2)
	return a, func(clock *time.Time) *Rotator {
		return NewRotator(Config{
			Client: a, Namespace: "ns", Secret: "s", Hosts: hosts(), Validating: []string{"patchbay"}, Log: logr.Discard(),
			Now: func() time.Time { return *clock },
		})
	}
}

// Replicas share one Secret, and after each sync the API server trusts what they serve.
func TestRotatorsShareCertificates(t *testing.T) {
	t.Parallel()
	a, newReplica := newWorld()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one, two := newReplica(&now), newReplica(&now)
	if _, err := one.GetCertificate(nil); !errors.Is(err, ErrNotReady) || one.Ready() || !one.NotAfter().IsZero() {
		t.Errorf("before the first sync: got %v, want ErrNotReady", err)
	}
	for range 40 { // through a rotation of the authority
		for _, rotator := range []*Rotator{one, two} {
			if err := rotator.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := a.trusts(rotator, now); err != nil {
				t.Fatalf("%s: %v", now, err)
			}
			if expiry := rotator.NotAfter(); !expiry.After(now) {
				t.Fatalf("%s: the metric has an expiry in the past: %s", now, expiry)
			}
		}
		writes := a.writes
		if err := one.Sync(t.Context()); err != nil || a.writes != writes {
			t.Fatalf("%s: a sync with nothing due: %v, %d writes", now, err, a.writes-writes)
		}
		now = now.Add(15 * 24 * time.Hour)
	}
	for _, h := range a.hooks.Webhooks {
		if len(h.ClientConfig.CABundle) == 0 {
			t.Error("a webhook has no caBundle")
		}
	}
}

func TestRotatorRecovers(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		harm   func(a *api, now *time.Time)
		fails  bool // the first sync
	}{
		"Expired":   {reason: "The controller was away for months.", harm: func(_ *api, now *time.Time) { *now = now.AddDate(0, 6, 0) }},
		"Damaged":   {reason: "Someone edited the Secret.", harm: func(a *api, _ *time.Time) { a.secret.Data["tls.key"] = []byte("x") }},
		"Emptied":   {reason: "Someone emptied the Secret.", harm: func(a *api, _ *time.Time) { a.secret.Data = nil }},
		"Deleted":   {reason: "Someone deleted the Secret.", harm: func(a *api, _ *time.Time) { a.secret = nil }},
		"Untrusted": {reason: "kubectl apply put an empty caBundle back.", harm: func(a *api, _ *time.Time) { a.hooks.Webhooks[0].ClientConfig.CABundle = nil }},
		"Conflict":  {reason: "Another replica renews at the same time.", fails: true, harm: func(a *api, _ *time.Time) { a.secret, a.conflict = nil, 1 }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, newReplica := newWorld()
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			rotator := newReplica(&now)
			if err := rotator.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			tc.harm(a, &now)
			err := rotator.Sync(t.Context())
			if (err != nil) != tc.fails {
				t.Fatalf("%s: Sync: %v", tc.reason, err)
			}
			if err != nil {
				err = rotator.Sync(t.Context())
			}
			if err := errors.Join(err, a.trusts(rotator, now)); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

// A webhook configuration that is installed later is an error until then, and the certificate is
// served already.
func TestRotatorWithoutConfiguration(t *testing.T) {
	t.Parallel()
	a, newReplica := newWorld()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rotator := newReplica(&now)
	a.missing = true
	if err := rotator.Sync(t.Context()); err == nil || !rotator.Ready() || rotator.CAInjected() {
		t.Errorf("Sync: got %v, ready %v, trusted %v, want an error, ready and not trusted", err, rotator.Ready(), rotator.CAInjected())
	}
	a.missing = false
	if err := errors.Join(rotator.Sync(t.Context()), a.trusts(rotator, now)); err != nil {
		t.Errorf("once it is there: %v", err)
	}
}
