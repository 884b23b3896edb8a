// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"strings"
	"testing"

	"k8s.io/client-go/discovery"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

// atEachVersion runs a test at the lab's Kubernetes and at the oldest one: CEL and its
// limits differ between versions. Neither has a webhook.
func atEachVersion(t *testing.T, test func(t *testing.T, env *apitest.Env)) {
	t.Helper()
	for name, start := range map[string]func(testing.TB) *apitest.Env{"Current": apitest.Start, "Oldest": apitest.StartOldest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

// The documentation promises this version.
func TestOldestVersion(t *testing.T) {
	t.Parallel()
	c, err := discovery.NewDiscoveryClientForConfig(apitest.StartOldest(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(v.GitVersion, "v1.31.") {
		t.Errorf("the oldest API server is %s, want 1.31", v.GitVersion)
	}
}
