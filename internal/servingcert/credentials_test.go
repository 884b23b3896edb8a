// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"crypto/x509"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func hosts() []string { return []string{"patchbay-webhook.patchbay-system.svc", "127.0.0.1"} }

// verify does what an API server does that trusts the bundle.
func verify(t *testing.T, trusted, served credentials, now time.Time) {
	t.Helper()
	for _, h := range hosts() {
		_, err := served.serving.cert.Verify(x509.VerifyOptions{DNSName: h, Roots: trusted.certPool(), CurrentTime: now})
		if err != nil {
			t.Fatalf("%s: verify %s: %v", now, h, err)
		}
	}
}

// API servers and replicas that are minutes behind never meet an untrusted certificate, in four
// years with a few syncs per day.
func TestRotationHasNoGap(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var c credentials
	var err error
	if c, _, err = c.renew(hosts(), now); err != nil {
		t.Fatal(err)
	}
	authorities, servings := map[string]bool{}, map[string]bool{}
	for end := now.AddDate(4, 0, 0); now.Before(end); now = now.Add(8 * time.Hour) {
		before := c
		for range 2 { // right after each other, as by replicas
			next, changed, err := c.renew(hosts(), now)
			if err != nil {
				t.Fatal(err)
			}
			if !changed {
				break
			}
			verify(t, before, next, now) // an API server behind the replicas
			verify(t, next, before, now) // a replica behind the API servers
			c = next
		}
		authorities[c.authorities[0].cert.SerialNumber.String()] = true
		servings[c.serving.cert.SerialNumber.String()] = true
		if len(c.authorities) > 3 {
			t.Fatalf("%s: %d authorities are trusted", now, len(c.authorities))
		}
	}
	if len(authorities) < 3 || len(servings) < 20 {
		t.Errorf("in four years: %d authorities and %d certificates, want more", len(authorities), len(servings))
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first, changed, err := credentials{}.renew(hosts(), begin)
	if err != nil || !changed {
		t.Fatalf("first: changed %v, %v", changed, err)
	}
	cases := map[string]struct {
		reason             string
		hosts              []string
		after              time.Duration
		authority, serving bool // renewed
		token              bool
		authorities        int
	}{
		"Same":     {reason: "Nothing is due.", after: 59 * time.Minute, authorities: 1},
		"Token":    {reason: "Only the token is due.", after: 24 * time.Hour, token: true, authorities: 1},
		"Serving":  {reason: "Two thirds of 90 days are over.", after: 61 * 24 * time.Hour, serving: true, token: true, authorities: 1},
		"Host":     {reason: "The Service has another name.", hosts: []string{"other.svc"}, after: time.Hour, serving: true, token: true, authorities: 1},
		"NewCA":    {reason: "Two thirds of two years are over; the old authority signs until the new one has propagated.", after: 500 * 24 * time.Hour, authority: true, serving: true, token: true, authorities: 2},
		"LongAway": {reason: "Everything has expired.", after: 1000 * 24 * time.Hour, authority: true, serving: true, token: true, authorities: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.hosts == nil {
				tc.hosts = hosts()
			}
			next, changed, err := first.renew(tc.hosts, begin.Add(tc.after))
			if err != nil {
				t.Fatal(err)
			}
			authority := !next.authorities[0].cert.Equal(first.authorities[0].cert)
			serving := !next.serving.cert.Equal(first.serving.cert)
			token := next.tokens[0] != first.tokens[0]
			if authority != tc.authority || serving != tc.serving || token != tc.token || changed != (authority || serving || token) || len(next.authorities) != tc.authorities {
				t.Errorf("%s\nrenewed: authority %v, serving %v, token %v, changed %v, %d authorities", tc.reason, authority, serving, token, changed, len(next.authorities))
			}
		})
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var c credentials
	for _, at := range []time.Time{begin, begin.Add(500 * 24 * time.Hour)} {
		var err error
		if c, _, err = c.renew(hosts(), at); err != nil {
			t.Fatal(err)
		}
	}
	data, err := c.secretData()
	if err != nil {
		t.Fatal(err)
	}
	read, err := parseSecretData(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := read.secretData()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(data, again); diff != "" || len(read.authorities) != 2 {
		t.Errorf("%d authorities; encode of decode: -want +got\n%s", len(read.authorities), diff)
	}
	for _, key := range []string{caCertKey, caKeyKey, servingCertKey, servingKeyKey} {
		broken := maps.Clone(data)
		delete(broken, key)
		if _, err := parseSecretData(broken); err == nil {
			t.Errorf("decode without %s: want an error", key)
		}
	}
	data[servingKeyKey] = data[caKeyKey]
	if _, err := parseSecretData(data); err == nil {
		t.Error("decode with another key: want an error")
	}
}
