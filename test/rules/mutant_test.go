// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// root is the module's folder, seen from this one.
const root = "../.."

// How long tests may take; they end themselves before, and say where they hang. A
// mutant that hangs has been noticed; what hangs with nothing switched off has failed,
// and a slow machine is no failure.
const (
	mutantBound = time.Minute
	keptBound   = 10 * time.Minute
)

// What try finds wrong with a row.
var (
	errTextNotFound = errors.New("the code moved on: update this row")
	errBuild        = errors.New("the mutant does not compile: its tests prove nothing")
	errSurvived     = errors.New("the rule is switched off and no test failed: write one")
	errNoTest       = errors.New("the pattern matches no test")
	errDied         = errors.New("the tests ended without a verdict")
)

// suite is a package's tests, with build tags.
type suite struct{ pkg, tags string }

// runMutant switches a row's rule off and returns nil if a test fails of it.
func runMutant(t *testing.T, r mutation) error {
	t.Helper()
	overlay, err := mutate(t, r)
	if err != nil {
		return err
	}
	binary, err := build(t, r.testSuite(), overlay)
	if err != nil {
		return err
	}
	return checkMutantOutcome(run(t, r.testSuite(), binary, r.test, mutantBound))
}

// mutate writes the changed file and the overlay that puts it into its place.
func mutate(t *testing.T, r mutation) (string, error) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, r.file))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errTextNotFound, err)
	}
	for _, c := range []textChange{{r.old, r.new}, r.andChange} {
		if source, err = c.apply(source); err != nil {
			return "", fmt.Errorf("%s: %w", r.file, err)
		}
	}
	changed := filepath.Join(t.TempDir(), filepath.Base(r.file))
	if err := os.WriteFile(changed, source, 0o600); err != nil {
		return "", err
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	content, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, content, 0o600)
}

// apply makes a change, unless it is none.
func (c textChange) apply(source []byte) ([]byte, error) {
	if c.old == "" {
		return source, nil
	}
	if n := bytes.Count(source, []byte(c.old)); n != 1 {
		return nil, fmt.Errorf("%w: the text is there %d times, want once:\n%s", errTextNotFound, n, c.old)
	}
	return bytes.Replace(source, []byte(c.old), []byte(c.new), 1), nil
}

// build compiles the tests of a package; with an overlay unless that is empty.
func build(t *testing.T, s suite, overlay string) (string, error) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "mutant.test")
	args := []string{"test", "-c", "-o", binary, "-tags", s.tags, "-ldflags=-s -w"} // nobody debugs it
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, "./"+s.pkg)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %w\n%s", errBuild, err, out)
	}
	return binary, nil
}

// run runs tests in their package's folder and returns what they printed.
func run(t *testing.T, s suite, binary, pattern string, bound time.Duration) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound+10*time.Second)
	defer cancel()
	args := []string{"-test.run=" + pattern, "-test.timeout=" + bound.String()}
	if usesRapid(t, binary) { // whose failures would be kept for the next run, of the unchanged code
		args = append(args, "-rapid.nofailfile", "-rapid.checks=60", "-rapid.shrinktime=1ms")
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(root, s.pkg)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func usesRapid(t *testing.T, binary string) bool {
	t.Helper()
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatalf("read build info of the tests: %v", err)
	}
	for _, d := range info.Deps {
		if d.Path == "pgregory.net/rapid" {
			return true
		}
	}
	return false
}

// checkMutantOutcome says what the end of a mutant's tests means. A test that hangs has
// noticed, too.
func checkMutantOutcome(out string, err error) error {
	switch {
	case strings.Contains(out, "testing: warning: no tests to run"):
		return errNoTest
	case err == nil:
		return errSurvived
	case strings.Contains(out, "--- FAIL:"), strings.Contains(out, "panic: test timed out"):
		return nil
	}
	return fmt.Errorf("%w: %w\n%s", errDied, err, out)
}
