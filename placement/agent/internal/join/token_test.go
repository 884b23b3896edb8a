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

// fakeServers answers as the hub, and as the cluster's own API server without a stored Secret.
type fakeServers struct {
	valid  string // the token that the hub accepts
	issued string // the token that the hub issues
	expire time.Duration
	stored []string
}

// ServeHTTP implements http.Handler.
func (f *fakeServers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	code := http.StatusOK
	switch {
	case strings.HasSuffix(r.URL.Path, "/token"):
		answer = authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
			Token: f.issued, ExpirationTimestamp: metav1.NewTime(time.Now().Add(f.expire)),
		}}
		if r.Header.Get("Authorization") != "Bearer "+f.valid {
			code = http.StatusUnauthorized
			answer = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonUnauthorized, Code: int32(code)}
		}
	case r.Method == http.MethodPut:
		secret := corev1.Secret{}
		if err := json.NewDecoder(r.Body).Decode(&secret); err != nil {
			code = http.StatusBadRequest
		}
		f.stored = append(f.stored, string(secret.Data[corev1.ServiceAccountTokenKey]))
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

// The agent stores only valid tokens.
func TestRenew(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason         string
		present, join  string
		hub            fakeServers
		stored, failed string
	}{
		"First":      {"The agent gets the first token with the join token.", "", "join", fakeServers{valid: "join", issued: "one", expire: time.Hour}, "one", ""},
		"Renewed":    {"The agent gets the next token with the present one.", "one", "", fakeServers{valid: "one", issued: "two", expire: time.Hour}, "two", ""},
		"JoinsAgain": {"The agent uses the join token when the hub rejects the present one.", "one", "join", fakeServers{valid: "join", issued: "two", expire: time.Hour}, "two", ""},
		"NoJoin":     {"Without a join token the agent keeps the rejected one.", "one", "", fakeServers{valid: "x", issued: "two", expire: time.Hour}, "", "hub token east"},
		"ClockAhead": {"A token that seems to have expired is not renewed without a pause.", "one", "", fakeServers{valid: "one", issued: "two", expire: -time.Hour}, "two", ""},
		"Empty":      {"An empty answer has no token.", "one", "", fakeServers{valid: "one", expire: time.Hour}, "", "the answer has no token"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokens, err := newTokens(t, &tc.hub, cmp.Or(tc.join, "set below"))
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
				t.Errorf("%s\ngot error %v, want one with %q", tc.reason, err, tc.failed)
			}
			if got := strings.Join(tc.hub.stored, " "); got != tc.stored {
				t.Errorf("%s\nstored: got %q, want %q", tc.reason, got, tc.stored)
			}
		})
	}
}

// An agent without any token fails at once.
func TestNoToken(t *testing.T) {
	t.Parallel()
	if _, err := newTokens(t, &fakeServers{}, ""); err == nil || !strings.Contains(err.Error(), "kubectl patchbay hub token east") {
		t.Errorf("got %v, want an error with the command to run", err)
	}
}

// newTokens returns the credentials of an agent before its first request.
func newTokens(t *testing.T, f *fakeServers, token string) (*TokenCredentials, error) {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	local, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return NewTokenCredentials(t.Context(), Config{
		Cluster: "east", Hub: &rest.Config{Host: server.URL, BearerToken: token}, Secrets: local.CoreV1().Secrets("own"), Secret: "stored",
	})
}
