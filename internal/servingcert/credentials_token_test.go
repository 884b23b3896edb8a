// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"net/http"
	"net/http/httptest"
	"path"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRenewTokens(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	aged := func(ages ...time.Duration) (tokens []token) {
		for _, a := range ages {
			tokens = append(tokens, newToken(now.Add(-a)))
		}
		return tokens
	}
	cases := map[string]struct {
		reason  string
		old     []token
		renewed bool
		kept    int
		path    int // of the renewed ones, the newest is 0
	}{
		"None":    {reason: "The first token is published at once, because there is no other.", renewed: true},
		"Fresh":   {reason: "The token is less than an hour old, and other replicas may not accept it yet.", old: aged(time.Minute, time.Hour), kept: 2, path: 1},
		"Settled": {reason: "All replicas accept the token.", old: aged(propagationTime, 80*time.Minute), kept: 2},
		"Hour":    {reason: "The next token is created, and the published one stays for now.", old: aged(time.Hour, 2*time.Hour), renewed: true, kept: 2, path: 1},
		"Away":    {reason: "The configurations may still contain any accepted token.", old: aged(72*time.Hour, 73*time.Hour), renewed: true, kept: 2, path: 1},
		"Oldest":  {reason: "No API server uses the oldest token any more.", old: aged(time.Hour, 2*time.Hour, 3*time.Hour), renewed: true, kept: 2, path: 1},
		"Ahead":   {reason: "A replica whose clock is ahead created the token.", old: aged(-time.Minute, time.Hour), kept: 2, path: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, renewed := renewTokens(tc.old, now)
			if renewed != tc.renewed {
				t.Fatalf("%s\nrenewed: got %v, want %v", tc.reason, renewed, tc.renewed)
			}
			rest := got
			if renewed {
				rest = got[1:]
			}
			if diff := cmp.Diff(tc.old[:tc.kept], rest, cmp.AllowUnexported(token{})); diff != "" && tc.kept+len(rest) > 0 {
				t.Errorf("%s\nkept: -want +got\n%s", tc.reason, diff)
			}
			if p := (credentials{tokens: got}).publishedToken(now); p != got[tc.path].text {
				t.Errorf("%s\nin the paths: got %s of %v, want the one at %d", tc.reason, p, got, tc.path)
			}
		})
	}
}

func TestDecodeTokens(t *testing.T) {
	t.Parallel()
	one, two := newToken(time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)), newToken(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	cases := map[string]struct {
		reason, text string
		want         []token
	}{
		"Both":     {"Both tokens are valid.", string(encodeTokens([]token{one, two})), []token{one, two}},
		"Timeless": {"Someone edited the Secret, so the token counts as old.", two.text, []token{{text: two.text}}},
		"Short":    {"A short token could be guessed.", "0123 2026-01-01T00:00:00Z", nil},
		"Path":     {"The text would change the path.", "../x 2026-01-01T00:00:00Z\n" + string(encodeTokens([]token{one})), []token{one}},
		"Empty":    {"The Secret has no token.", "\n\n", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, decodeTokens([]byte(tc.text)), cmp.AllowUnexported(token{})); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// For a day each replica syncs every minute, one of them 5 minutes behind, and an API server that
// is 20 minutes behind calls both. It is always answered, while the token changes every hour, and a
// token that was printed in an error is useless three hours later.
func TestTokensChangeUnderRequests(t *testing.T) {
	t.Parallel()
	a, newReplica := newWorld()
	url := "https://127.0.0.1:9443"
	for i := range a.hooks.Webhooks {
		a.hooks.Webhooks[i].Name, a.hooks.Webhooks[i].ClientConfig.URL = "pods.danm.io", &url
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one, two := newReplica(&now), newReplica(&now)
	ask := func(rotator *Rotator, token string) int {
		w := httptest.NewRecorder()
		rotator.RequireToken(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w,
			httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/pods.danm.io/"+token, http.NoBody))
		return w.Code
	}
	var paths []string
	seen := map[string]time.Time{}
	for minute := range 24 * 60 {
		looking := []*Rotator{one}
		if minute%5 == 0 {
			looking = append(looking, two)
		}
		for _, rotator := range looking {
			if err := rotator.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		paths = append(paths, path.Base(*a.hooks.Webhooks[0].ClientConfig.URL))
		for _, rotator := range []*Rotator{one, two} {
			for _, known := range []string{paths[minute], paths[max(0, minute-20)]} {
				if got := ask(rotator, known); got != http.StatusOK {
					t.Fatalf("minute %d: an API server is answered %d", minute, got)
				}
			}
		}
		if _, ok := seen[paths[minute]]; !ok {
			seen[paths[minute]] = now
		}
		now = now.Add(time.Minute)
	}
	for token, first := range seen {
		if got := ask(one, token); now.Sub(first) > 3*time.Hour && got != http.StatusForbidden {
			t.Errorf("a token of %s ago: got %d, want it rejected", now.Sub(first), got)
		}
	}
	if len(seen) < 23 || len(seen) > 25 {
		t.Errorf("%d tokens in a day, want one for each hour", len(seen))
	}
}
