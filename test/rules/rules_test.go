// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"
)

// row is a rule and how it is switched off.
type row struct {
	// name is the subtest's.
	name string
	// rule is what the design says.
	rule string
	// file is where it is kept, below the module's folder; old is the text there
	// that does, once, and new what stands there without the rule.
	file, old, new string
	// and is a second change to the same file, for a rule that is kept twice.
	and change
	// in is the package whose tests notice; the file's own when empty. tags are
	// the build tags of the test.
	in, tags string
	// test matches the test that has to fail.
	test string
}

// change is one text in place of another.
type change struct{ old, new string }

// suite is where a row's test is.
func (r row) suite() suite {
	if r.in != "" {
		return suite{r.in, r.tags}
	}
	return suite{path.Dir(r.file), r.tags}
}

// rules are all rows that need no API server.
func rules() []row {
	return slices.Concat(coverRules(), attemptRules(), fenceRules(), holdRules(), recoveryRules(), olderRules(), poolRules(), goneRules(), daemonRules())
}

// Each row finds its place in the source: a second's look before the long one.
func TestRowsAreUpToDate(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, r := range slices.Concat(rules(), apiRules()) {
		if _, err := mutate(t, r); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
		if names[r.name] {
			t.Errorf("two rows are called %s", r.name)
		}
		names[r.name] = true
	}
}

// Each rule, switched off, makes a test fail.
func TestRules(t *testing.T) {
	t.Parallel()
	switchOff(t, rules())
}

func switchOff(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if err := try(t, r); err != nil {
				t.Errorf("%s\n%s (%s): %v", r.rule, r.suite().pkg, r.test, err)
			}
		})
	}
}

// With nothing switched off, the same tests pass.
func TestRulesKept(t *testing.T) {
	t.Parallel()
	keep(t, rules())
}

func keep(t *testing.T, rows []row) {
	t.Helper()
	for s, patterns := range patterns(rows) {
		t.Run(s.pkg, func(t *testing.T) {
			t.Parallel()
			binary, err := build(t, s, "")
			if err != nil {
				t.Fatal(err)
			}
			if out, err := run(t, s, binary, strings.Join(patterns, "|"), keptBound); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// patterns are the tests that the rows name, by suite.
func patterns(rows []row) map[suite][]string {
	by := map[suite][]string{}
	for _, r := range rows {
		if s := r.suite(); !slices.Contains(by[s], r.test) {
			by[s] = append(by[s], r.test)
		}
	}
	return by
}

// A row that proves nothing is told apart from one that does.
func TestRowsThatProveNothing(t *testing.T) {
	t.Parallel()
	const file, text = "ipam/hold.go", "if !a.IsValid() || a.Zone() != \"\" {"
	cases := map[string]struct {
		reason string
		row    row
		want   error
	}{
		"Noticed":  {"the rule is off and a test says so", row{old: text, new: "if !a.IsValid() {", test: "^TestHold$"}, nil},
		"Survived": {"nothing is switched off", row{old: text, new: "if a.Zone() != \"\" || !a.IsValid() {", test: "^TestHold$"}, errSurvived},
		"Moved":    {"the place is gone", row{old: "no such text", test: "^TestHold$"}, errMoved},
		"Twice":    {"the place is not unique", row{old: "netip.Addr", test: "^TestHold$"}, errMoved},
		"Broken":   {"no test ran", row{old: text, new: "if nonsense {", test: "^TestHold$"}, errBuild},
		"NoTest":   {"no test ran", row{old: text, new: "if !a.IsValid() {", test: "^TestNone$"}, errNoTest},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.row.file = file
			if err := try(t, tc.row); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}
