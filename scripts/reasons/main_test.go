// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// Readers look a reason up by its name, and a bar in a text must not end its cell.
func TestRender(t *testing.T) {
	t.Parallel()
	page := string(render([]v1.ReasonInfo{
		{Reason: "Lost", On: "Ready", When: "It is lost.", Remedy: "Run a | b <file>.", Test: "p.TestLost"},
		{Reason: "Found", On: "Ready", When: "It is found.", Remedy: "Nothing.", Test: "p.TestFound"},
	}))
	want := "| `Found` | Ready | It is found. | Nothing. | `p.TestFound` |\n" +
		"| `Lost` | Ready | It is lost. | Run a \\| b &lt;file>. | `p.TestLost` |\n"
	if !strings.HasSuffix(page, want) {
		t.Errorf("got\n%s\nwant it to end with\n%s", page, want)
	}
}
