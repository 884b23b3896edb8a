// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"slices"
	"strings"
	"testing"
)

func TestImportLaws(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		for _, l := range laws() {
			for _, imp := range l.breaks(p) {
				t.Errorf("%s imports %s: %s", p.ImportPath, imp, l.reason)
			}
		}
	}
}

func TestEveryPackageHasADoc(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		if len(p.GoFiles) > 0 && strings.TrimSpace(p.Doc) == "" {
			t.Errorf("%s has no package comment: say what it is for", p.ImportPath)
		}
	}
}

// A law that cannot be broken is no law: each catches an import made up for it.
func TestLawsCatch(t *testing.T) {
	t.Parallel()
	for _, l := range laws() {
		who := l.packages
		if who == "" {
			who = "netwatcher"
		}
		bad := l.forbidden[0]
		p := pkg{ImportPath: module + "/" + who, Imports: []string{bad}, Deps: []string{bad}}
		if len(l.breaks(p)) == 0 {
			t.Errorf("law for %q does not catch an import of %s", l.packages, bad)
		}
	}
}

// A law about a folder that has moved would never be broken.
func TestLawsNamePackages(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	exists := func(folder string) bool {
		return slices.ContainsFunc(packages, func(p pkg) bool {
			path, ours := modulePath(p.ImportPath)
			return ours && under(path, folder)
		})
	}
	for _, l := range laws() {
		for _, folder := range append([]string{l.packages}, l.except...) {
			if !exists(folder) {
				t.Errorf("the law for %q names %s, where no package is", l.packages, folder)
			}
		}
		for _, imp := range append(l.forbidden, l.allowed...) {
			if folder, ours := modulePath(imp); ours && folder != "." && !exists(folder) {
				t.Errorf("the law for %q names %s, where no package is", l.packages, imp)
			}
		}
	}
}

// The laws allow what they say they allow.
func TestLawsAllow(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, path, imp string
	}{
		"ModelReadsTypes":  {"network turns API types into the model", "internal/network", module + "/api/danm/v1"},
		"KernelNetlink":    {"daemon/internal/kernel is where netlink belongs", "daemon/internal/kernel", kernels[0]},
		"FirewallNftables": {"daemon/internal/firewall is where nftables belongs", "daemon/internal/firewall", kernels[2]},
		"LabNetlink":       {"the lab's tests look at the kernel themselves", "test/lab", kernels[0]},
		"SimilarName":      {"a folder's name is not a prefix of another's", "ipam/allocator", "log/slog"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pkg{ImportPath: module + "/" + tc.path, Imports: []string{tc.imp}, Deps: []string{tc.imp}}
			for _, l := range laws() {
				if got := l.breaks(p); len(got) > 0 {
					t.Errorf("%s: law for %q forbids %v", tc.reason, l.packages, got)
				}
			}
		})
	}
}
