// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/mistakes"
)

// A text of any form stays one cell of its table.
func TestRender(t *testing.T) {
	t.Parallel()
	got := string(render([]mistakes.Mistake{
		{Title: "a | b", Who: mistakes.Tenant, Subject: "Pods", Excerpt: "x|y", Answer: "one\n  two `three`", Remedy: "<none>"},
		{Title: "c", Who: mistakes.Netadmin, Subject: "Networks", Excerpt: "z", Where: "Event X", Answer: "d", Remedy: "e"},
	}))
	for _, want := range []string{
		"\n## Pods\n", "\n| a \\| b (tenant): `x\\|y` | `one`<br>`` two `three` `` | &lt;none> |\n",
		"\n## Networks\n", "\n| c (netadmin): `z` | Event X: `d` | e |\n", "2 mistakes",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %q in it", got, want)
		}
	}
}
