// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// served is an API server that serves these kinds of placement; none for an API server without them.
func served(t *testing.T, kinds ...string) *rest.Config {
	t.Helper()
	var resources []string
	for _, kind := range kinds {
		resources = append(resources, `{"name": "`+strings.ToLower(kind)+`s", "kind": "`+kind+`", "verbs": ["create"]}`)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(kinds) == 0 || r.URL.Path != "/apis/placement.patchbay.io/v1alpha1" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "placement.patchbay.io/v1alpha1", "resources": [` + strings.Join(resources, ",") + `]}`))
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}
}

// The agent names the API server that lacks a kind. It may not reach the hub, which is another reason.
func TestKindsCheck(t *testing.T) {
	t.Parallel()
	away := &rest.Config{Host: "http://127.0.0.1:1"}
	cases := map[string]struct {
		reason     string
		hub, local *rest.Config
		want       string
	}{
		"All":     {reason: "Both API servers serve the kinds.", hub: served(t, "Cluster", "Work"), local: served(t, "AppliedWork")},
		"Local":   {reason: "The cluster's kind is missing.", hub: served(t, "Cluster", "Work"), local: served(t), want: "this cluster: the API server must serve the kinds AppliedWork"},
		"Hub":     {reason: "A kind of the hub is missing.", hub: served(t, "Cluster"), local: served(t, "AppliedWork"), want: "the hub: the API server must serve the kinds Work"},
		"HubAway": {reason: "The agent's other check reports that.", hub: away, local: served(t, "AppliedWork")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check, err := kindsCheck(t.Context(), tc.hub, tc.local)
			if err != nil {
				t.Fatal(err)
			}
			if err := check(t.Context()); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
