// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/internal/preflight"
)

func TestPreflightFlags(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, flag, want string
	}{
		"feature": {"an unknown feature would not be checked", "--features=vlan,qinq", `flag --features: must be of ipvlan, macvlan, vlan, vxlan and source-guard: got "qinq"`},
		"output":  {"there are two formats", "--output=yaml", `flag --output: must be table or json: got "yaml"`},
		"image":   {"a Pod needs an image", "--image=", "flag --image: must be the node daemon's image"},
		"folder":  {"a relative path has no meaning on a node", "--cni-conf-dir=net.d", `flag --cni-conf-dir: must be an absolute path: got "net.d"`},
		"timeout": {"without time no Pod ends", "--timeout=0s", "flag --timeout: must be positive"},
	} {
		err := Run(t.Context(), []string{"preflight", "--server=http://127.0.0.1:1", tc.flag}, &bytes.Buffer{}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s: got %v, want %q", name, tc.reason, err, tc.want)
		}
	}
}

func TestPreflightTable(t *testing.T) {
	t.Parallel()
	results := []preflight.Result{
		{Check: "Kubernetes", Level: preflight.OK, Message: "v1.35.0"},
		{Node: "a", Check: "kernel", Level: preflight.OK, Message: "6.1.0"},
		{Node: "a", Check: "module vxlan", Level: preflight.Warning, Message: "not loaded", Remedy: "Load it."},
		{Node: "b", Check: "kernel", Level: preflight.OK, Message: "6.1.0"},
		{Node: "b", Check: "ports", Level: preflight.Failure, Message: "in use", Remedy: "Stop the program."},
	}
	var out bytes.Buffer
	if err := printTable(&out, groupResults(results)); err != nil {
		t.Fatal(err)
	}
	want := `RESULT    NODES       CHECK          FOUND
OK        (cluster)   Kubernetes     v1.35.0
OK        a, b        kernel         6.1.0
WARNING   a           module vxlan   not loaded
FAILURE   b           ports          in use

FAILURE: ports on b: in use
  Stop the program.

WARNING: module vxlan on a: not loaded
  Load it.
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	if err := failed(results); err == nil || err.Error() != "1 of 5 checks failed: ports" {
		t.Errorf("got %v, want an error that names the check", err)
	}
	if err := failed(results[:4]); err != nil {
		t.Errorf("warnings only: got %v, want no error", err)
	}
}
