// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	const text = "# Title\n```\n$ one\n```\n## Part\n1. List\n   ```yaml\n   a:\n     b: c\n   ```\n"
	page, err := Parse("docs/x.md", text)
	if err != nil {
		t.Fatal(err)
	}
	want := Page{
		Path:     "docs/x.md",
		Headings: map[string]int{"Title": 1, "Part": 5},
		Blocks: []Block{
			{Line: 3, Lines: []string{"$ one"}},
			{Language: "yaml", Line: 8, Lines: []string{"a:", "  b: c"}},
		},
	}
	if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	if b, err := page.Block("b: c"); err != nil || b.Line != 8 {
		t.Errorf("the block with b: c: got line %d, %v, want line 8", b.Line, err)
	}
	for _, text := range []string{"two", "e"} { // none has it, both have it
		page.Blocks[1].Lines[0] = "one:"
		if _, err := page.Block(text); !errors.Is(err, ErrNotOneBlock) {
			t.Errorf("the block with %q: got %v, want %v", text, err, ErrNotOneBlock)
		}
	}
	if _, err := Parse("docs/x.md", "```\n$ one\n"); !errors.Is(err, ErrOpenFence) {
		t.Errorf("a block without an end: got %v, want %v", err, ErrOpenFence)
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, text string
		want         []Command
		wantError    error
	}{
		"Output": {
			reason: "What follows a prompt is output.", text: "$ one\nfirst\nsecond\n$ two",
			want: []Command{{Line: 1, Text: "one", Output: []string{"first", "second"}}, {Line: 4, Text: "two"}},
		},
		"NoPrompt": {
			reason: "Without a prompt each line is a command, and a comment is none.", text: "# first\none\n\ntwo",
			want: []Command{{Line: 2, Text: "one"}, {Line: 4, Text: "two"}},
		},
		"Quotes": {
			reason: "A quote ends on a later line.", text: "$ jq '.a |\n  .b'   # it's a comment\nout",
			want: []Command{{Line: 1, Text: "jq '.a |\n  .b'   # it's a comment", Output: []string{"out"}}},
		},
		"Backslash": {
			reason: "A backslash continues the line.", text: "one \\\n  --flag\ntwo",
			want: []Command{{Line: 1, Text: "one \\\n  --flag"}, {Line: 3, Text: "two"}},
		},
		"HereDocument": {
			reason: "A here-document ends with its word.", text: "cat >x <<'END'\n# a: 'b\nEND\ntwo",
			want: []Command{{Line: 1, Text: "cat >x <<'END'\n# a: 'b\nEND"}, {Line: 4, Text: "two"}},
		},
		"Assignment": {
			reason: "A variable is for the next command, which another shell runs.", text: "A=$(one two)\nthree \"$A\"",
			want: []Command{{Line: 1, Text: "A=$(one two)\nthree \"$A\""}},
		},
		"OutputFirst": {reason: "Output is of a command.", text: "out\n$ one", wantError: ErrNoCommand},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := Block{Line: 1, Lines: strings.Split(tc.text, "\n")}
			got, err := b.Commands()
			if !errors.Is(err, tc.wantError) {
				t.Errorf("%s got %v, want %v", tc.reason, err, tc.wantError)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s commands (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
