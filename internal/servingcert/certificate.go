// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Lifetimes of certificates. Each is renewed after two thirds.
const (
	authorityLifetime = 2 * 365 * 24 * time.Hour
	servingLifetime   = 90 * 24 * time.Hour
	// clockSkew is how far the clocks of machines may differ.
	clockSkew = time.Hour
)

// keyPair is a certificate with its key.
type keyPair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// renewalDue reports whether two thirds of the lifetime are over.
func (p keyPair) renewalDue(now time.Time) bool {
	life := p.cert.NotAfter.Sub(p.cert.NotBefore)
	return now.After(p.cert.NotAfter.Add(-life / 3))
}

// newAuthority returns a new self-signed authority.
func newAuthority(now time.Time) (keyPair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "patchbay-serving-ca", Organization: []string{"patchbay"}},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	return signCertificate(template, nil)
}

// newServingCertificate returns a new certificate for a server with these names, signed by ca.
func newServingCertificate(ca keyPair, hosts []string, now time.Time) (keyPair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: hosts[0], Organization: []string{"patchbay"}},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(servingLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return signCertificate(template, &ca)
}

// signCertificate returns a new key and its certificate, which is self-signed without an issuer.
func signCertificate(template *x509.Certificate, issuer *keyPair) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("make key of %s: %w", template.Subject.CommonName, err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return keyPair{}, fmt.Errorf("make serial number of %s: %w", template.Subject.CommonName, err)
	}
	by := keyPair{cert: template, key: key}
	if issuer != nil {
		by = *issuer
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return keyPair{}, fmt.Errorf("read certificate of %s: %w", template.Subject.CommonName, err)
	}
	return keyPair{cert: cert, key: key}, nil
}
