// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

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

// bundle is the caBundle of a webhook configuration.
func (c chain) bundle() []byte {
	var text []byte
	for _, a := range c.authorities {
		text = append(text, encodeCert(a.cert)...)
	}
	return text
}

// tls returns what a server presents.
func (c chain) tls() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{c.serving.cert.Raw}, PrivateKey: c.serving.key, Leaf: c.serving.cert}
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
