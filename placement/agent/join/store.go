// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/certificate"
)

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
