// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// certificateLifetime is the lifetime of certificates: a standalone hub must be restarted before it ends.
const certificateLifetime = 365 * 24 * time.Hour

// certificateAuthority signs the certificates of one hub. It is stored, because agents trust it.
type certificateAuthority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// loadOrCreateCA reads a CA of a folder, or creates it.
func loadOrCreateCA(dir, name, commonName string) (*certificateAuthority, error) {
	certFile, keyFile := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	key, err := loadOrCreateKey(keyFile)
	if err != nil {
		return nil, err
	}
	if list, err := cert.CertsFromFile(certFile); err == nil && len(list) == 1 {
		return &certificateAuthority{list[0], key}, nil
	}
	c, err := cert.NewSelfSignedCACert(cert.Config{CommonName: commonName}, key)
	if err != nil {
		return nil, fmt.Errorf("create CA: %w", err)
	}
	if err := cert.WriteCert(certFile, encodePEM(c)); err != nil {
		return nil, fmt.Errorf("store CA: %w", err)
	}
	return &certificateAuthority{c, key}, nil
}

// loadOrCreateKey reads a private key, or creates it.
func loadOrCreateKey(file string) (crypto.Signer, error) {
	data, _, err := keyutil.LoadOrGenerateKeyFile(file)
	if err != nil {
		return nil, fmt.Errorf("load key %s: %w", file, err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("parse key %s: %w", file, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("parse key %s: a %T cannot sign", file, key)
	}
	return signer, nil
}

// issueCertificate writes a new certificate base.crt for the key base.key.
func (a *certificateAuthority) issueCertificate(base string, subject pkix.Name, usage x509.ExtKeyUsage, ips []net.IP, names []string) error {
	key, err := loadOrCreateKey(base + ".key")
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(math.MaxInt64))
	if err != nil {
		return fmt.Errorf("create serial number: %w", err)
	}
	template := &x509.Certificate{
		Subject: subject, SerialNumber: serial, IPAddresses: ips, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certificateLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign certificate of %s: %w", subject.CommonName, err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("parse certificate of %s: %w", subject.CommonName, err)
	}
	if err := os.WriteFile(base+".crt", encodePEM(c), 0o600); err != nil {
		return fmt.Errorf("store certificate: %w", err)
	}
	return nil
}

func encodePEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})
}
