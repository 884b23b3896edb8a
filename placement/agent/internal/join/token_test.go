// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// counter answers as hub and as the cluster's own API server, which keeps no Secret.
type counter struct {
	valid  string // the credential that the hub knows
	gives  string
	expire time.Duration
	stored []string
}

// ServeHTTP implements http.Handler.
func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	code := http.StatusOK
	switch {
	case strings.HasSuffix(r.URL.Path, "/token"):
		answer = authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
			Token: c.gives, ExpirationTimestamp: metav1.NewTime(time.Now().Add(c.expire)),
		}}
		if r.Header.Get("Authorization") != "Bearer "+c.valid {
			code = http.StatusUnauthorized
			answer = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonUnauthorized, Code: int32(code)}
		}
	case r.Method == http.MethodPut:
		secret := corev1.Secret{}
		if err := json.NewDecoder(r.Body).Decode(&secret); err != nil {
			code = http.StatusBadRequest
		}
		c.stored = append(c.stored, string(secret.Data[corev1.ServiceAccountTokenKey]))
		answer = secret
	default:
		code = http.StatusNotFound
		answer = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: int32(code)}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// What an agent has instead of a token is never taken for one, nor kept.
func TestRenew(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason         string
		present, join  string
		hub            counter
		stored, failed string
	}{
		"First":      {"The join token gets the first.", "", "join", counter{valid: "join", gives: "one", expire: time.Hour}, "one", ""},
		"Renewed":    {"A token gets the next.", "one", "", counter{valid: "one", gives: "two", expire: time.Hour}, "two", ""},
		"JoinsAgain": {"A token that is known no longer gives way to the join token.", "one", "join", counter{valid: "join", gives: "two", expire: time.Hour}, "two", ""},
		"NoJoin":     {"Without a join token the refused one stays.", "one", "", counter{valid: "x", gives: "two", expire: time.Hour}, "", "hub token east"},
		"ClockAhead": {"What has run out by our clock is not renewed without a pause.", "one", "", counter{valid: "one", gives: "two", expire: -time.Hour}, "two", ""},
		"Empty":      {"An empty answer is no token.", "one", "", counter{valid: "one", expire: time.Hour}, "", "the answer has none"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokens, err := joining(t, &tc.hub, cmp.Or(tc.join, "set below"))
			if err != nil {
				t.Fatal(err)
			}
			tokens.joinToken = tc.join
			if tc.present != "" {
				tokens.setToken(tc.present)
			}
			pause, err := tokens.renew(t.Context())
			if tc.failed == "" && (err != nil || pause < minRenewInterval || pause > maxRenewInterval) {
				t.Errorf("%s\ngot pause %s, error %v", tc.reason, pause, err)
			}
			if tc.failed != "" && (err == nil || !strings.Contains(err.Error(), tc.failed)) {
				t.Errorf("%s\ngot error %v, want one that has %q", tc.reason, err, tc.failed)
			}
			if got := strings.Join(tc.hub.stored, " "); got != tc.stored {
				t.Errorf("%s\nstored: got %q, want %q", tc.reason, got, tc.stored)
			}
		})
	}
}

// An agent that has no token at all says so at once.
func TestNoToken(t *testing.T) {
	t.Parallel()
	if _, err := joining(t, &counter{}, ""); err == nil || !strings.Contains(err.Error(), "kubectl patchbay hub token east") {
		t.Errorf("got %v, want what to do", err)
	}
}

// joining is an agent before its first request.
func joining(t *testing.T, c *counter, token string) (*TokenCredentials, error) {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	local, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return NewTokenCredentials(t.Context(), Config{
		Cluster: "east", Hub: &rest.Config{Host: server.URL, BearerToken: token}, Secrets: local.CoreV1().Secrets("own"), Secret: "kept",
	})
}
