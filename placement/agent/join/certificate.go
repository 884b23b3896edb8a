// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/connrotation"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// certificatePoll is how often a request looks whether the first certificate came.
const certificatePoll = 200 * time.Millisecond

// Credentials are an agent's certificate, and the connections made with it.
type Credentials struct {
	manager certificate.Manager
	dialer  *connrotation.Dialer
	config  *rest.Config

	mu   sync.Mutex
	used *tls.Certificate
}

// New reads the stored certificate, if there is one. It fails when the cluster's own API
// server is away.
func New(ctx context.Context, c Config) (*Credentials, error) {
	creds := &Credentials{dialer: connrotation.NewDialer(dial)}
	if err := creds.configure(c.Hub); err != nil {
		return nil, err
	}
	var err error
	creds.manager, err = certificate.NewManager(&certificate.Config{
		Name: "hub", Ctx: &ctx,
		SignerName: certificatesv1.KubeAPIServerClientSignerName,
		Template: &x509.CertificateRequest{Subject: pkix.Name{
			CommonName: v1alpha1.ClusterUserPrefix + c.Cluster, Organization: []string{v1alpha1.ClusterGroup},
		}},
		GetUsages:        certificate.DefaultKubeletClientGetUsages,
		CertificateStore: &store{ctx: ctx, secrets: c.Secrets, name: c.Secret},
		ClientsetFn: func(current *tls.Certificate) (kubernetes.Interface, error) {
			if current != nil {
				return kubernetes.NewForConfig(creds.config)
			}
			return kubernetes.NewForConfig(c.Hub)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("manage the certificate of cluster %s: %w", c.Cluster, err)
	}
	return creds, nil
}

// configure makes the client configuration that uses the present certificate.
func (c *Credentials) configure(hub *rest.Config) error {
	w, err := newWay(hub)
	if err != nil {
		return err
	}
	w.tls.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if current := c.manager.Current(); current != nil {
			return current, nil
		}
		return &tls.Certificate{}, nil
	}
	c.config = w.config(&certified{credentials: c, next: w.transport(c.dialer.DialContext)})
	return nil
}

// RESTConfig is the client configuration for the hub. Its requests wait for the first
// certificate.
func (c *Credentials) RESTConfig() *rest.Config { return c.config }

// Start begins to ask for certificates; it ends with the context given to New.
func (c *Credentials) Start() { c.manager.Start() }

// Joined tells whether there is a certificate.
func (c *Credentials) Joined() bool { return c.manager.Current() != nil }

// renewed ends the connections that were made with an older certificate.
func (c *Credentials) renewed() {
	current := c.manager.Current()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used != nil && current != c.used {
		c.dialer.CloseAll()
	}
	c.used = current
}

// certified holds requests back until there is a certificate: the hub would only
// refuse them.
type certified struct {
	credentials *Credentials
	next        http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *certified) RoundTrip(r *http.Request) (*http.Response, error) {
	tick := time.NewTicker(certificatePoll)
	defer tick.Stop()
	for !t.credentials.Joined() {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return nil, fmt.Errorf("await the hub's certificate: %w", r.Context().Err())
		}
	}
	t.credentials.renewed()
	return t.next.RoundTrip(r)
}

// storeTimeout bounds one request to the cluster's own API server.
const storeTimeout = 30 * time.Second

// store keeps the certificate in a Secret of type kubernetes.io/tls. It implements
// certificate.Store.
type store struct {
	ctx     context.Context // certificate.Store passes none
	secrets corev1client.SecretInterface
	name    string
}

// Current implements certificate.Store.
func (s *store) Current() (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(s.ctx, storeTimeout)
	defer cancel()
	secret, err := s.secrets.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		none := certificate.NoCertKeyError(fmt.Sprintf("no Secret %s: the agent has not joined yet", s.name))
		return nil, &none
	}
	if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", s.name, err)
	}
	return parse(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
}

// Update implements certificate.Store.
func (s *store) Update(cert, key []byte) (*tls.Certificate, error) {
	parsed, err := parse(cert, key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), storeTimeout) // the hub gives it once
	defer cancel()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key},
	}
	if err := put(ctx, s.secrets, secret); err != nil {
		return nil, fmt.Errorf("store the certificate: %w", err)
	}
	return parsed, nil
}

// put makes a Secret be as it is here.
func put(ctx context.Context, secrets corev1client.SecretInterface, secret *corev1.Secret) error {
	_, err := secrets.Update(ctx, secret, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", secret.Name, err)
	}
	return nil
}

// parse reads a pair; the manager wants the leaf parsed.
func parse(cert, key []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	return &pair, nil
}
