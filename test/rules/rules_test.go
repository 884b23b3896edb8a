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

// mutation is a rule and how it is switched off.
type mutation struct {
	// name is the subtest's.
	name string
	// rule is what the design says.
	rule string
	// file is where it is kept, below the module's folder; old is the text there
	// that does, once, and new what stands there without the rule.
	file, old, new string
	// andChange is a second change to the same file, for a rule that is kept twice.
	andChange textChange
	// testPackage is the package whose tests notice; the file's own when empty. tags are
	// the build tags of the test.
	testPackage, tags string
	// test matches the test that has to fail.
	test string
}

// textChange is one text in place of another.
type textChange struct{ old, new string }

// testSuite is where a row's test is.
func (r mutation) testSuite() suite {
	if r.testPackage != "" {
		return suite{r.testPackage, r.tags}
	}
	return suite{path.Dir(r.file), r.tags}
}

// allMutations are all rows that need no API server.
func allMutations() []mutation {
	return slices.Concat(ownershipRules(), retryRules(), fenceRules(), warmPoolRules(), recoveryRules(), rollbackRules(), poolRules(), deletedNodeRules(), daemonRules())
}

// Each row finds its place in the source: a second's look before the long one.
func TestMutationsApply(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, r := range slices.Concat(allMutations(), apiRules()) {
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
	switchOff(t, allMutations())
}

func switchOff(t *testing.T, rows []mutation) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if err := runMutant(t, r); err != nil {
				t.Errorf("%s\n%s (%s): %v", r.rule, r.testSuite().pkg, r.test, err)
			}
		})
	}
}

// With nothing switched off, the same tests pass.
func TestRulesPassUnmodified(t *testing.T) {
	t.Parallel()
	runUnmodified(t, allMutations())
}

func runUnmodified(t *testing.T, rows []mutation) {
	t.Helper()
	for s, patterns := range testPatterns(rows) {
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

// testPatterns are the tests that the rows name, by suite.
func testPatterns(rows []mutation) map[suite][]string {
	by := map[suite][]string{}
	for _, r := range rows {
		if s := r.testSuite(); !slices.Contains(by[s], r.test) {
			by[s] = append(by[s], r.test)
		}
	}
	return by
}

// A row that proves nothing is told apart from one that does.
func TestUselessMutationsAreReported(t *testing.T) {
	t.Parallel()
	const file, text = "ipam/warmpool.go", "if !a.IsValid() || a.Zone() != \"\" {"
	cases := map[string]struct {
		reason string
		row    mutation
		want   error
	}{
		"Noticed":  {"the rule is off and a test says so", mutation{old: text, new: "if !a.IsValid() {", test: "^TestWarmPool$"}, nil},
		"Survived": {"nothing is switched off", mutation{old: text, new: "if a.Zone() != \"\" || !a.IsValid() {", test: "^TestWarmPool$"}, errSurvived},
		"Moved":    {"the place is gone", mutation{old: "no such text", test: "^TestWarmPool$"}, errTextNotFound},
		"Twice":    {"the place is not unique", mutation{old: "netip.Addr", test: "^TestWarmPool$"}, errTextNotFound},
		"Broken":   {"no test ran", mutation{old: text, new: "if nonsense {", test: "^TestWarmPool$"}, errBuild},
		"NoTest":   {"no test ran", mutation{old: text, new: "if !a.IsValid() {", test: "^TestNone$"}, errNoTest},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.row.file = file
			if err := runMutant(t, tc.row); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}
