// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOptions(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "patchbay-system")
	t.Setenv("POD_NAME", "agent-1")
	cases := map[string]struct {
		reason  string
		args    []string
		refused string
	}{
		"Least":     {"A name and a hub.", []string{"--cluster=east", "--hub-kubeconfig=f"}, ""},
		"Version":   {"It needs nothing else.", []string{"--version"}, ""},
		"NoCluster": {"Whose Works?", []string{"--hub-kubeconfig=f"}, "--cluster"},
		"BadName":   {"It is part of a namespace's name.", []string{"--cluster=East", "--hub-kubeconfig=f"}, `"East"`},
		"LongName":  {"cluster-<name> has 63 characters at most.", []string{"--cluster=" + strings.Repeat("a", 56), "--hub-kubeconfig=f"}, "55"},
		"NoHub":     {"Which hub?", []string{"--cluster=east"}, "--hub-kubeconfig"},
		"NoSpace":   {"Where is its certificate?", []string{"--cluster=east", "--hub-kubeconfig=f", "--namespace="}, "--namespace"},
		"Token":     {"A certificate would not get through.", []string{"--cluster=east", "--hub-kubeconfig=f", "--join", "--token-auth"}, ""},
		"TokenJoin": {"Without joining there is a credential already.", []string{"--cluster=east", "--hub-kubeconfig=f", "--token-auth"}, "--token-auth"},
		"Security":  {"A stricter one.", []string{"--cluster=east", "--hub-kubeconfig=f", "--pod-security=restricted"}, ""},
		"NoPolicy":  {"Admission lets the agent make no such namespace.", []string{"--cluster=east", "--hub-kubeconfig=f", "--pod-security=privileged"}, "--pod-security"},
		"Rest":      {"A flag without its dashes.", []string{"--cluster=east", "--hub-kubeconfig=f", "join"}, "arguments"},
		"Unknown":   {"A slip.", []string{"--clusters=east"}, "clusters"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parseOptions(tc.args, &bytes.Buffer{})
			if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s\ngot %v, want %q", tc.reason, err, tc.refused)
			}
		})
	}
	o, err := parseOptions([]string{"--cluster=east", "--hub-kubeconfig=f", "--allow=services,configmaps", "--allow=deployments.apps"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"services", "configmaps", "deployments.apps"}, o.allowedResources); diff != "" || o.identity != "agent-1" {
		t.Errorf("allow: -want +got\n%s; identity %s", diff, o.identity)
	}
}

// An agent without its hub is alive, and not ready.
func TestHandler(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		path  string
		ready bool
		want  int
	}{
		"Alive":    {"/healthz", false, http.StatusOK},
		"NotReady": {"/readyz", false, http.StatusServiceUnavailable},
		"Ready":    {"/readyz", true, http.StatusOK},
		"Other":    {"/", true, http.StatusNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := httptest.NewRecorder()
			healthHandler(func() bool { return tc.ready }).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, tc.path, nil))
			if rec.Code != tc.want {
				t.Errorf("%s: got %d, want %d", tc.path, rec.Code, tc.want)
			}
		})
	}
}
