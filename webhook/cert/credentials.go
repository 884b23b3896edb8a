// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// settle is how long a new authority is trusted before a certificate of it is served:
// all replicas put it into the configurations, and all API servers hear of it.
const settle = 10 * time.Minute

// chain is what the Secret holds.
type chain struct {
	// authorities are trusted, the newest first.
	authorities []pair
	// serving is what is served; its cert is nil when there is none.
	serving pair
	// tokens are the last part of the webhooks' paths, the newest first: see Keeper.Guard.
	tokens []token
}

// renew returns the chain as it should be now, and whether that differs. Whatever
// time it is called at, what was served before stays trusted until it expires.
func (c chain) renew(hosts []string, now time.Time) (chain, bool, error) {
	next := chain{serving: c.serving, authorities: slices.Clone(c.authorities)}
	next.authorities = slices.DeleteFunc(next.authorities, func(a pair) bool { return !now.Before(a.cert.NotAfter) })
	var changed bool
	next.tokens, changed = renewTokens(c.tokens, now)
	changed = changed || len(next.authorities) != len(c.authorities)
	if len(next.authorities) == 0 || next.authorities[0].old(now) {
		ca, err := newAuthority(now)
		if err != nil {
			return chain{}, false, err
		}
		next.authorities = slices.Insert(next.authorities, 0, ca)
		changed = true
	}
	ca := next.signer(now)
	if next.fits(ca, hosts, now) {
		return next, changed, nil
	}
	serving, err := newServing(ca, hosts, now)
	if err != nil {
		return chain{}, false, err
	}
	next.serving = serving
	return next, true, nil
}

// fits reports whether what is served may stay.
func (c chain) fits(ca pair, hosts []string, now time.Time) bool {
	s := c.serving
	if s.cert == nil || s.old(now) || s.cert.CheckSignatureFrom(ca.cert) != nil {
		return false
	}
	return !slices.ContainsFunc(hosts, func(h string) bool { return s.cert.VerifyHostname(h) != nil })
}

// signer is the newest authority that has settled, or with none the oldest.
func (c chain) signer(now time.Time) pair {
	for _, a := range c.authorities {
		if now.Sub(a.cert.NotBefore.Add(skew)) >= settle {
			return a
		}
	}
	return c.authorities[len(c.authorities)-1]
}

// path is the token for the configurations: the newest that all replicas accept by
// now, as with a new authority, or with none the oldest.
func (c chain) path(now time.Time) string {
	for _, t := range c.tokens {
		if now.Sub(t.made) >= settle {
			return t.text
		}
	}
	return c.tokens[len(c.tokens)-1].text
}

// trust writes the bundle and the token's path into the webhook of that name, and
// reports whether that is a change. The manifests have neither: who applies them again
// and again takes nothing away.
func (c chain) trust(name, token string, to *admissionv1.WebhookClientConfig) bool {
	changed := !bytes.Equal(to.CABundle, c.bundle())
	to.CABundle = c.bundle()
	path := "/" + name + "/" + token
	switch {
	case to.Service != nil:
		changed = changed || to.Service.Path == nil || path != *to.Service.Path
		to.Service.Path = &path
	case to.URL != nil:
		if u, err := url.Parse(*to.URL); err == nil {
			u.Path = path
			changed = changed || u.String() != *to.URL
			text := u.String()
			to.URL = &text
		}
	}
	return changed
}

// bundle is the caBundle of a webhook configuration.
func (c chain) bundle() []byte {
	var text []byte
	for _, a := range c.authorities {
		text = append(text, encodeCert(a.cert)...)
	}
	return text
}

// pool is what an API server trusts.
func (c chain) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, a := range c.authorities {
		pool.AddCert(a.cert)
	}
	return pool
}

// tls returns what a server presents.
func (c chain) tls() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{c.serving.cert.Raw}, PrivateKey: c.serving.key, Leaf: c.serving.cert}
}

// Keys of the Secret's data: those of the type kubernetes.io/tls, and the authorities
// with their keys in the same order.
const (
	servingCertKey = "tls.crt"
	servingKeyKey  = "tls.key"
	bundleKey      = "ca.crt"
	bundleKeyKey   = "ca.key"
	tokenKey       = "token"
)

// encode returns the Secret's data.
func (c chain) encode() (map[string][]byte, error) {
	data := map[string][]byte{bundleKey: c.bundle(), tokenKey: encodeTokens(c.tokens)}
	for _, a := range c.authorities {
		key, err := encodeKey(a.key)
		if err != nil {
			return nil, err
		}
		data[bundleKeyKey] = append(data[bundleKeyKey], key...)
	}
	key, err := encodeKey(c.serving.key)
	if err != nil {
		return nil, err
	}
	data[servingKeyKey] = key
	data[servingCertKey] = encodeCert(c.serving.cert)
	return data, nil
}

func encodeCert(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func encodeKey(k *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// decode reads a Secret's data. What cannot be read is an error: its caller makes
// everything anew then.
func decode(data map[string][]byte) (chain, error) {
	authorities, err := decodePairs(data[bundleKey], data[bundleKeyKey])
	if err != nil {
		return chain{}, fmt.Errorf("decode %s: %w", bundleKey, err)
	}
	serving, err := decodePairs(data[servingCertKey], data[servingKeyKey])
	if err != nil {
		return chain{}, fmt.Errorf("decode %s: %w", servingCertKey, err)
	}
	if len(authorities) == 0 || len(serving) != 1 {
		return chain{}, fmt.Errorf("%d authorities and %d certificates, want at least one and one", len(authorities), len(serving))
	}
	return chain{authorities: authorities, serving: serving[0], tokens: decodeTokens(data[tokenKey])}, nil
}

var errPairs = errors.New("certificates and keys do not match")

func decodePairs(certs, keys []byte) ([]pair, error) {
	var pairs []pair
	for {
		var c, k *pem.Block
		c, certs = pem.Decode(certs)
		k, keys = pem.Decode(keys)
		if c == nil && k == nil {
			return pairs, nil
		}
		if c == nil || k == nil {
			return nil, errPairs
		}
		cert, err := x509.ParseCertificate(c.Bytes)
		if err != nil {
			return nil, err
		}
		key, err := x509.ParseECPrivateKey(k.Bytes)
		if err != nil {
			return nil, err
		}
		if !key.PublicKey.Equal(cert.PublicKey) {
			return nil, errPairs
		}
		pairs = append(pairs, pair{cert: cert, key: key})
	}
}
