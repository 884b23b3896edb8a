// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/x509"
	"slices"
	"time"
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

// signer is the newest authority that has settled, or with none the oldest.
func (c chain) signer(now time.Time) pair {
	for _, a := range c.authorities {
		if now.Sub(a.cert.NotBefore.Add(skew)) >= settle {
			return a
		}
	}
	return c.authorities[len(c.authorities)-1]
}

// fits reports whether what is served may stay.
func (c chain) fits(ca pair, hosts []string, now time.Time) bool {
	s := c.serving
	if s.cert == nil || s.old(now) || s.cert.CheckSignatureFrom(ca.cert) != nil {
		return false
	}
	return !slices.ContainsFunc(hosts, func(h string) bool { return s.cert.VerifyHostname(h) != nil })
}

// pool is what an API server trusts.
func (c chain) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, a := range c.authorities {
		pool.AddCert(a.cert)
	}
	return pool
}
