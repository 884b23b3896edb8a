// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// propagationTime is how long a new authority is in the configurations before a certificate of it
// is served, so that all replicas have injected it and all API servers have seen it.
const propagationTime = 10 * time.Minute

// credentials is the content of the Secret.
type credentials struct {
	// authorities are in the caBundle, newest first.
	authorities []keyPair
	// serving is the server's certificate; its cert is nil when there is none.
	serving keyPair
	// tokens are accepted as the last part of the webhooks' paths, newest first: see
	// Rotator.RequireToken.
	tokens []token
	// noTokens is true for a server without webhooks, which makes no tokens.
	noTokens bool
}

// renew returns the credentials as they should be now, and whether they differ. At any time, what
// was served before stays trusted until it expires.
func (c credentials) renew(hosts []string, now time.Time) (credentials, bool, error) {
	next := credentials{serving: c.serving, authorities: slices.Clone(c.authorities), noTokens: c.noTokens}
	next.authorities = slices.DeleteFunc(next.authorities, func(a keyPair) bool { return !now.Before(a.cert.NotAfter) })
	var changed bool
	if !c.noTokens {
		next.tokens, changed = renewTokens(c.tokens, now)
	}
	changed = changed || len(next.authorities) != len(c.authorities)
	if len(next.authorities) == 0 || next.authorities[0].renewalDue(now) {
		ca, err := newAuthority(now)
		if err != nil {
			return credentials{}, false, err
		}
		next.authorities = slices.Insert(next.authorities, 0, ca)
		changed = true
	}
	ca := next.signingAuthority(now)
	if next.servingIsValid(ca, hosts, now) {
		return next, changed, nil
	}
	serving, err := newServingCertificate(ca, hosts, now)
	if err != nil {
		return credentials{}, false, err
	}
	next.serving = serving
	return next, true, nil
}

// servingIsValid reports whether the serving certificate needs no renewal.
func (c credentials) servingIsValid(ca keyPair, hosts []string, now time.Time) bool {
	s := c.serving
	if s.cert == nil || s.renewalDue(now) || s.cert.CheckSignatureFrom(ca.cert) != nil {
		return false
	}
	return !slices.ContainsFunc(hosts, func(h string) bool { return s.cert.VerifyHostname(h) != nil })
}

// signingAuthority returns the newest authority that is older than propagationTime; the oldest when
// none is.
func (c credentials) signingAuthority(now time.Time) keyPair {
	for _, a := range c.authorities {
		if now.Sub(a.cert.NotBefore.Add(clockSkew)) >= propagationTime {
			return a
		}
	}
	return c.authorities[len(c.authorities)-1]
}

// publishedToken returns the token for the configurations: the newest that all replicas accept by
// now; the oldest when none is old enough.
func (c credentials) publishedToken(now time.Time) string {
	for _, t := range c.tokens {
		if now.Sub(t.created) >= propagationTime {
			return t.text
		}
	}
	return c.tokens[len(c.tokens)-1].text
}

// injectInto writes the bundle and the path with the token into the webhook of that name, and
// reports whether that is a change. The manifests contain neither, so applying them again by
// server-side apply removes nothing.
func (c credentials) injectInto(name, token string, to *admissionv1.WebhookClientConfig) bool {
	changed := !bytes.Equal(to.CABundle, c.caBundle())
	to.CABundle = c.caBundle()
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

// caBundle returns the caBundle of the webhook configurations.
func (c credentials) caBundle() []byte {
	var text []byte
	for _, a := range c.authorities {
		text = append(text, encodeCert(a.cert)...)
	}
	return text
}

// certPool returns the authorities that an API server trusts.
func (c credentials) certPool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, a := range c.authorities {
		pool.AddCert(a.cert)
	}
	return pool
}

// tlsCertificate returns the serving certificate.
func (c credentials) tlsCertificate() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{c.serving.cert.Raw}, PrivateKey: c.serving.key, Leaf: c.serving.cert}
}

// Keys of the Secret's data: those of the type kubernetes.io/tls, and the authorities with their
// keys in the same order.
const (
	servingCertKey = "tls.crt"
	servingKeyKey  = "tls.key"
	caCertKey      = "ca.crt"
	caKeyKey       = "ca.key"
	tokenKey       = "token"
)

// secretData returns the Secret's data.
func (c credentials) secretData() (map[string][]byte, error) {
	data := map[string][]byte{caCertKey: c.caBundle()}
	if !c.noTokens {
		data[tokenKey] = encodeTokens(c.tokens)
	}
	for _, a := range c.authorities {
		key, err := encodeKey(a.key)
		if err != nil {
			return nil, err
		}
		data[caKeyKey] = append(data[caKeyKey], key...)
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

// parseSecretData parses a Secret's data. After an error the caller creates all credentials again.
func parseSecretData(data map[string][]byte) (credentials, error) {
	authorities, err := parseKeyPairs(data[caCertKey], data[caKeyKey])
	if err != nil {
		return credentials{}, fmt.Errorf("decode %s: %w", caCertKey, err)
	}
	serving, err := parseKeyPairs(data[servingCertKey], data[servingKeyKey])
	if err != nil {
		return credentials{}, fmt.Errorf("decode %s: %w", servingCertKey, err)
	}
	if len(authorities) == 0 || len(serving) != 1 {
		return credentials{}, fmt.Errorf("%d authorities and %d certificates: must be at least one authority and exactly one certificate", len(authorities), len(serving))
	}
	return credentials{authorities: authorities, serving: serving[0], tokens: decodeTokens(data[tokenKey])}, nil
}

var errKeyMismatch = errors.New("certificates and keys do not match")

func parseKeyPairs(certs, keys []byte) ([]keyPair, error) {
	var pairs []keyPair
	for {
		var c, k *pem.Block
		c, certs = pem.Decode(certs)
		k, keys = pem.Decode(keys)
		if c == nil && k == nil {
			return pairs, nil
		}
		if c == nil || k == nil {
			return nil, errKeyMismatch
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
			return nil, errKeyMismatch
		}
		pairs = append(pairs, keyPair{cert: cert, key: key})
	}
}

const (
	// tokenRotationInterval is the time between two new tokens.
	tokenRotationInterval = time.Hour
	// maxTokens is how many tokens are accepted: one that is not in the configurations yet, the one
	// that is, and the one before, which an API server may still use, for instance when no replica
	// ran while it was to be replaced.
	maxTokens = 3
)

// token is a secret in the webhooks' paths, with its creation time.
type token struct {
	text    string
	created time.Time
}

// newToken returns an unguessable token. crypto/rand.Read never fails.
func newToken(now time.Time) token {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return token{text: hex.EncodeToString(b[:]), created: now}
}

// renewTokens returns the tokens as they should be now, and whether they differ.
func renewTokens(old []token, now time.Time) ([]token, bool) {
	if len(old) > 0 && now.Sub(old[0].created) < tokenRotationInterval {
		return old, false
	}
	next := slices.Insert(slices.Clone(old), 0, newToken(now))
	return next[:min(len(next), maxTokens)], true
}

// encodeTokens writes one line per token.
func encodeTokens(tokens []token) []byte {
	var lines []string
	for _, t := range tokens {
		lines = append(lines, t.text+" "+t.created.UTC().Format(time.RFC3339))
	}
	return []byte(strings.Join(lines, "\n"))
}

// decodeTokens parses what encodeTokens wrote. A token without a readable time counts as old, and a
// line without a token is ignored.
func decodeTokens(data []byte) []token {
	var tokens []token
	for line := range strings.Lines(string(data)) {
		text, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		if b, err := hex.DecodeString(text); err != nil || len(b) != 16 {
			continue
		}
		created, _ := time.Parse(time.RFC3339, at)
		tokens = append(tokens, token{text: text, created: created})
	}
	return tokens
}
