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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/connrotation"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// certificatePollInterval is how often a waiting request checks for the first certificate.
const certificatePollInterval = 200 * time.Millisecond

// CertificateCredentials are an agent's client certificate, which renews itself. They implement credential.
type CertificateCredentials struct {
	manager       certificate.Manager
	dialer        *connrotation.Dialer
	restConfig    *rest.Config
	upgradeConfig *rest.Config

	mu       sync.Mutex
	lastUsed *tls.Certificate
}

// NewCertificateCredentials reads the stored certificate, if there is one. It fails when the cluster's own
// API server is unreachable.
func NewCertificateCredentials(ctx context.Context, c Config) (*CertificateCredentials, error) {
	creds := &CertificateCredentials{dialer: connrotation.NewDialer(dialWithKeepAlive)}
	if err := creds.buildRESTConfig(c.Hub); err != nil {
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
		CertificateStore: &certificateStore{ctx: ctx, secrets: c.Secrets, name: c.Secret},
		ClientsetFn: func(current *tls.Certificate) (kubernetes.Interface, error) {
			if current != nil {
				return kubernetes.NewForConfig(creds.restConfig)
			}
			return kubernetes.NewForConfig(c.Hub)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("manage the certificate of cluster %s: %w", c.Cluster, err)
	}
	return creds, nil
}

// buildRESTConfig makes the client configuration with the present certificate.
func (c *CertificateCredentials) buildRESTConfig(hub *rest.Config) error {
	w, err := newHubTransport(hub)
	if err != nil {
		return err
	}
	w.tls.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if current := c.manager.Current(); current != nil {
			return current, nil
		}
		return &tls.Certificate{}, nil
	}
	c.restConfig = w.restConfig(&credentialTransport{credential: c, next: w.roundTripper(c.dialer.DialContext)})
	c.upgradeConfig = w.upgradeConfig(c)
	return nil
}

// RESTConfig returns the client configuration for the hub. Its requests wait for the first certificate.
func (c *CertificateCredentials) RESTConfig() *rest.Config { return c.restConfig }

// UpgradeConfig returns the client configuration for requests that upgrade their connection. A renewal of the
// certificate leaves upgraded connections open.
func (c *CertificateCredentials) UpgradeConfig() *rest.Config { return c.upgradeConfig }

// Start requests and renews certificates until the context of NewCertificateCredentials ends.
func (c *CertificateCredentials) Start() { c.manager.Start() }

// HasCertificate tells whether there is a certificate.
func (c *CertificateCredentials) HasCertificate() bool { return c.manager.Current() != nil }

// wait implements credential.
func (c *CertificateCredentials) wait(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, certificatePollInterval, true, func(context.Context) (bool, error) {
		return c.HasCertificate(), nil
	})
}

// authorize implements credential: the certificate is the connection's. It closes the connections with an
// older certificate.
func (c *CertificateCredentials) authorize(r *http.Request) *http.Request {
	current := c.manager.Current()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastUsed != nil && current != c.lastUsed {
		c.dialer.CloseAll()
	}
	c.lastUsed = current
	return r
}

// rejected implements credential. The certificate manager renews the certificate by its age only.
func (c *CertificateCredentials) rejected() {}

// storeTimeout bounds one request to the cluster's own API server.
const storeTimeout = 30 * time.Second

// certificateStore stores the certificate in a Secret of type kubernetes.io/tls. It implements
// certificate.Store.
type certificateStore struct {
	ctx     context.Context // certificate.Store's methods have none
	secrets corev1client.SecretInterface
	name    string
}

// Current implements certificate.Store.
func (s *certificateStore) Current() (*tls.Certificate, error) {
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
	return parseKeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
}

// Update implements certificate.Store.
func (s *certificateStore) Update(cert, key []byte) (*tls.Certificate, error) {
	parsed, err := parseKeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), storeTimeout) // the hub issues it once only
	defer cancel()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key},
	}
	if err := writeSecret(ctx, s.secrets, secret); err != nil {
		return nil, fmt.Errorf("store the certificate: %w", err)
	}
	return parsed, nil
}

// writeSecret updates or creates a Secret.
func writeSecret(ctx context.Context, secrets corev1client.SecretInterface, secret *corev1.Secret) error {
	_, err := secrets.Update(ctx, secret, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", secret.Name, err)
	}
	return nil
}

// parseKeyPair parses certificate and key. The certificate manager requires the parsed leaf.
func parseKeyPair(cert, key []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	return &pair, nil
}
