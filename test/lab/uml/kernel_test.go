// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindKernel(t *testing.T) {
	bin, empty := t.TempDir(), t.TempDir()
	built := filepath.Join(bin, builtKernel)
	if err := os.WriteFile(built, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(here, bin)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason, choice, bin string
		want, message       string
	}{
		"Built":        {reason: "The built kernel is the first choice.", bin: bin, want: built},
		"BuiltByName":  {reason: "It can be asked for.", choice: KernelBuilt, bin: bin, want: built},
		"Relative":     {reason: "The kernel starts in another folder.", bin: relative, want: built},
		"NotBuilt":     {reason: "An explicit choice has no fallback.", choice: KernelBuilt, bin: empty, message: "scripts/build-linux"},
		"NoShim":       {reason: "The fallback needs its shim on some processors, so always.", choice: KernelDebian, bin: empty, message: builtShim},
		"NeitherThere": {reason: "Without any kernel the error names the commands that install one.", bin: empty, message: "make packages"},
		"Unknown":      {reason: "A misspelt choice is no choice.", choice: "6.1", bin: bin, message: `must be "built" or "debian", got "6.1"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv(KernelVariable, tc.choice)
			got, err := FindKernel(tc.bin)
			if got.Program != tc.want || (err != nil) != (tc.message != "") {
				t.Fatalf("%s\ngot %q, %v", tc.reason, got.Program, err)
			}
			if err != nil && !strings.Contains(err.Error(), tc.message) {
				t.Errorf("%s\ngot %v, want one with %q", tc.reason, err, tc.message)
			}
		})
	}
}

// Drivers that are built in are not loaded, and modules are.
func TestModules(t *testing.T) {
	t.Parallel()
	if m := (Kernel{}).modules(); len(m) > 0 {
		t.Errorf("a kernel without modules loads %v", m)
	}
	if m := (Kernel{ModuleFolder: "/m/6.1"}).modules(); len(m) == 0 {
		t.Error("a kernel with modules loads none")
	}
}

func TestProcessor(t *testing.T) {
	t.Parallel()
	const two = `processor	: 0
model name	: Fast One
flags		: fpu xsave avx512f avx512dq amx_tile

processor	: 1
model name	: Fast One
flags		: fpu xsave avx512f avx512dq amx_tile
`
	cases := map[string]struct{ reason, cpuinfo, want string }{
		"Two":   {reason: "Features that make the register state larger are named, once.", cpuinfo: two, want: "2 × Fast One (xsave avx512f amx_tile)"},
		"Empty": {reason: "A file that cannot be read is no failure.", want: "0 × unknown processor ()"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := describeProcessor(tc.cpuinfo); got != tc.want {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
