// SPDX-License-Identifier: Apache-2.0

package securemetrics

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"path/filepath"
	"time"
)

// selfSignedLife is longer than any process. Clients cannot verify the certificate, so
// that its expiry says nothing.
const selfSignedLife = 10 * 365 * 24 * time.Hour

// certificatesIn serves the certificate of a folder, or one that is self-signed without.
func certificatesIn(dir string) (*tls.Config, error) {
	if dir == "" {
		c, err := selfSigned(time.Now())
		if err != nil {
			return nil, fmt.Errorf("make certificate for metrics: %w", err)
		}
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{c}}, nil
	}
	// Scrapers keep their connection, so that files are seldom read.
	read := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("flag --metrics-cert-dir: %w", err)
		}
		return &c, nil
	}
	if _, err := read(nil); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: read}, nil
}

// selfSigned makes a key and its certificate.
func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "patchbay-metrics"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSignedLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"patchbay-metrics"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
