// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/app"
)

func TestOptions(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "patchbay-system")
	t.Setenv("POD_NAME", "agent-1")
	cases := map[string]struct {
		reason  string
		args    []string
		refused string
	}{
		"Least":     {"A cluster name and a hub are enough.", []string{"--cluster=east", "--hub-kubeconfig=f"}, ""},
		"Version":   {"--version needs no other flag.", []string{"--version"}, ""},
		"NoCluster": {"The agent must know its cluster's name to find its Works.", []string{"--hub-kubeconfig=f"}, "--cluster"},
		"BadName":   {"The name is part of a namespace's name.", []string{"--cluster=East", "--hub-kubeconfig=f"}, `"East"`},
		"LongName":  {"A namespace's name cluster-<name> has at most 63 characters.", []string{"--cluster=" + strings.Repeat("a", 56), "--hub-kubeconfig=f"}, "55"},
		"NoHub":     {"The agent must have a hub.", []string{"--cluster=east"}, "--hub-kubeconfig"},
		"NoSpace":   {"The agent must know where its Secret is.", []string{"--cluster=east", "--hub-kubeconfig=f", "--namespace="}, "--namespace"},
		"Token":     {"A client certificate does not pass a load balancer that terminates TLS.", []string{"--cluster=east", "--hub-kubeconfig=f", "--join", "--token-auth"}, ""},
		"TokenJoin": {"Without --join the agent has a credential already.", []string{"--cluster=east", "--hub-kubeconfig=f", "--token-auth"}, "--token-auth"},
		"Security":  {"A stricter level is allowed.", []string{"--cluster=east", "--hub-kubeconfig=f", "--pod-security=restricted"}, ""},
		"NoPolicy":  {"The admission policy does not let the agent create privileged namespaces.", []string{"--cluster=east", "--hub-kubeconfig=f", "--pod-security=privileged"}, "--pod-security"},
		"Rest":      {"A flag without its dashes is not ignored.", []string{"--cluster=east", "--hub-kubeconfig=f", "join"}, "arguments"},
		"OneDash":   {"Flags have two dashes.", []string{"-cluster=east", "--hub-kubeconfig=f"}, "shorthand"},
		"Unknown":   {"A flag with a typing error is not ignored.", []string{"--clusters=east"}, "clusters"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parseOptions(tc.args, &bytes.Buffer{})
			if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s\ngot %v, want %q", tc.reason, err, tc.refused)
			}
		})
	}
	o, err := parseOptions([]string{"--cluster=east", "--hub-kubeconfig=f", "--allowed-resources=services,configmaps", "--allowed-resources=deployments.apps"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"services", "configmaps", "deployments.apps"}, o.allowedResources); diff != "" || o.identity != "agent-1" {
		t.Errorf("allow: -want +got\n%s; identity %s", diff, o.identity)
	}
}

// An agent that has no connection to its hub is alive and not ready.
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
			app.HealthHandler(readyCheck(func() bool { return tc.ready })).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, tc.path, nil))
			if rec.Code != tc.want {
				t.Errorf("%s: got %d, want %d", tc.path, rec.Code, tc.want)
			}
		})
	}
}
