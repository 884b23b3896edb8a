// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, page, printed string
		varying               []string
		want                  string
	}{
		"Equal":     {reason: "The same text matches.", page: "a\nb", printed: "a\nb\n"},
		"Blanks":    {reason: "The width of a column depends on the other lines.", page: "NAME  READY\nx     True", printed: "NAME    READY\nx       True\n"},
		"Other":     {reason: "Another word does not match.", page: "a\nx  True\nc", printed: "a\nx  False\nc", want: "    a\n  - x  True\n  + x  False\n    c\n"},
		"Missing":   {reason: "A missing line is marked.", page: "a\nb", printed: "a", want: "    a\n  - b\n"},
		"Further":   {reason: "A further line is marked.", page: "a", printed: "a\nb", want: "    a\n  + b\n"},
		"Nothing":   {reason: "A command that prints nothing does not match.", page: "a", printed: "", want: "  - a\n"},
		"AnyText":   {reason: "… is any text in a line.", page: "a … d", printed: "a b c d"},
		"AnyLines":  {reason: "… alone is any lines, or none.", page: "…\na\n…\nb\n…", printed: "x\ny\na\nb"},
		"Between":   {reason: "A line between any lines must be there.", page: "…\na\n…", printed: "x\ny", want: "    …\n  - a\n  … x\n  … y\n    …\n"},
		"Pod":       {reason: "The names of Pods are made by Kubernetes.", page: "Pod red/hello-7885c77466-gzr6h on node node-1", printed: "Pod red/hello-8cddf65fc-mnm2m on node node-2"},
		"OtherPod":  {reason: "The name of the Deployment is ours.", page: "hello-7885c77466-gzr6h", printed: "other-8cddf65fc-mnm2m", want: "  - hello-7885c77466-gzr6h\n  + other-8cddf65fc-mnm2m\n"},
		"Age":       {reason: "An age is a column.", page: "x 38s", printed: "x 2m3s"},
		"Number":    {reason: "A number is no age.", page: "x 38", printed: "x 39", want: "  - x 38\n  + x 39\n"},
		"MAC":       {reason: "MAC addresses are random.", page: "02:89:00:00:04:01", printed: "9a:9e:d7:bd:4a:44"},
		"Special":   {reason: "The page has text, not patterns.", page: "a.b (c)", printed: "axb (c)", want: "  - a.b (c)\n  + axb (c)\n"},
		"PageVary":  {reason: "A page has patterns of its own.", page: "FREE 229 of 241", printed: "FREE 237 of 241", varying: []string{`2[23]\d`}},
		"PageFirst": {reason: "A number of the page has as many digits as a token.", page: "FREE 9223372036854775795", printed: "FREE 9223372036854775797", varying: []string{`92233720368547757\d\d`}},
		"PageFixed": {reason: "What they do not match is compared.", page: "FREE 229 of 241", printed: "FREE 237 of 254", varying: []string{`2[23]\d`}, want: "  - FREE 229 of 241\n  + FREE 237 of 254\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Expect(strings.Split(tc.page, "\n"), tc.varying...).Diff(tc.printed)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s diff (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
