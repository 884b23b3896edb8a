// SPDX-License-Identifier: Apache-2.0

package cert

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

// Lives of certificates. Each is renewed when two thirds are over.
const (
	authorityLife = 2 * 365 * 24 * time.Hour
	servingLife   = 90 * 24 * time.Hour
	// skew is by how much the clocks of machines may differ.
	skew = time.Hour
)

// pair is a certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// old reports whether two thirds of its life are over.
func (p pair) old(now time.Time) bool {
	life := p.cert.NotAfter.Sub(p.cert.NotBefore)
	return now.After(p.cert.NotAfter.Add(-life / 3))
}

// newAuthority makes a self-signed authority.
func newAuthority(now time.Time) (pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "patchbay-webhook-ca", Organization: []string{"patchbay"}},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	return sign(template, nil)
}

// newServing makes a certificate for a server with these names, signed by ca.
func newServing(ca pair, hosts []string, now time.Time) (pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: hosts[0], Organization: []string{"patchbay"}},
		NotBefore:   now.Add(-skew),
		NotAfter:    now.Add(servingLife),
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
	return sign(template, &ca)
}

// sign makes a key and a certificate; without an issuer it signs itself.
func sign(template *x509.Certificate, issuer *pair) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make key of %s: %w", template.Subject.CommonName, err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return pair{}, fmt.Errorf("make serial number of %s: %w", template.Subject.CommonName, err)
	}
	by := pair{cert: template, key: key}
	if issuer != nil {
		by = *issuer
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, fmt.Errorf("read certificate of %s: %w", template.Subject.CommonName, err)
	}
	return pair{cert: cert, key: key}, nil
}
