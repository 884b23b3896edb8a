// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"testing"

	"github.com/patchbay-cni/patchbay/test/source"
)

// Definitions returns the path of deployments/crds, for tests that delete the CustomResourceDefinitions of an API
// server of their own.
func Definitions(tb testing.TB) string {
	tb.Helper()
	folder, err := source.Path("deployments", "crds")
	if err != nil {
		tb.Fatal(err)
	}
	return folder
}

// InstallDefinitions applies deployments/crds as a user does, and waits until the API server serves the kinds.
func (e *Env) InstallDefinitions(tb testing.TB) {
	tb.Helper()
	e.Kubectl(tb, "apply", "--server-side", "--force-conflicts", "--kustomize", Definitions(tb))
	e.Kubectl(tb, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
}
