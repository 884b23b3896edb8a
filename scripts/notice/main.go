// SPDX-License-Identifier: Apache-2.0

// Command notice prints the licences of everything that is linked into the released programs, on all their
// platforms: Go itself and the modules, with each licence or notice in the folder of a used package or above it.
// The programs of Kubernetes and etcd in the hub's image count, too.
// Modules with the same text are listed together. It fails for a module without a licence.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/scripts/internal/product"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "notice:", err)
		os.Exit(1)
	}
}

// pkg is a package as `go list` prints it.
type pkg struct {
	Dir    string
	Module *struct {
		module
		Main    bool
		Replace *module
	}
}

// module is where a package is from.
type module struct{ Path, Version, Dir string }

// licenseFile matches the names of files with licences and notices.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

const noticeHeader = `Patchbay is licensed under the Apache License 2.0 (LICENSE).

Its programs, and those of Kubernetes and etcd in the image of the hub, contain Go and the
modules below. Each text stands once, after the names and files that it is of.
"make generate" writes this file.
`

// run writes the notice for the programs of the product.
func run(w io.Writer) error {
	var packages []pkg
	for platform, programs := range product.All().Builds() {
		mains := map[string][]string{}
		for _, p := range programs {
			mains[p.Module] = append(mains[p.Module], p.Package)
		}
		for folder, programs := range mains {
			linked, err := linkedPackages(folder, platform, programs)
			if err != nil {
				return err
			}
			packages = append(packages, linked...)
		}
	}
	texts, err := readLicenses(packages)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, render(texts))
	return err
}

// linkedPackages lists the packages in programs of a module.
func linkedPackages(folder string, platform product.Platform, mains []string) ([]pkg, error) {
	args := []string{"list", "-deps", "-tags", product.Tags, "-json=Dir,Module"}
	list := exec.Command("go", append(args, mains...)...)
	list.Env = append(os.Environ(), "GOOS="+platform.OS, "GOARCH="+platform.Arch, "CGO_ENABLED=0")
	list.Dir, list.Stderr = folder, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages of %s in %s: %w", strings.Join(mains, " "), folder, err)
	}
	var packages []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		packages = append(packages, p)
	}
}

// readLicenses maps each text to its modules.
func readLicenses(packages []pkg) (map[string][]string, error) {
	texts, modules := map[string][]string{}, map[string]int{}
	done := map[string]bool{}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find Go: %w", err)
	}
	if _, err := readLicenseDir(texts, strings.TrimSpace(string(root)), "Go"); err != nil {
		return nil, err
	}
	for _, p := range packages {
		if p.Module == nil || p.Module.Main {
			continue
		}
		from := p.Module.module
		if p.Module.Replace != nil {
			from = *p.Module.Replace
		}
		name := from.Path + " " + from.Version
		for dir := p.Dir; len(dir) >= len(from.Dir) && !done[dir]; dir = filepath.Dir(dir) {
			done[dir] = true
			n, err := readLicenseDir(texts, dir, strings.TrimSuffix(name+" "+strings.TrimPrefix(dir[len(from.Dir):], "/"), " "))
			if err != nil {
				return nil, err
			}
			modules[name] += n
		}
	}
	for name, n := range modules {
		if n == 0 {
			return nil, fmt.Errorf("module %s has no licence: add where it is", name)
		}
	}
	return texts, nil
}

// readLicenseDir adds the licences of a folder and returns how many there are.
func readLicenseDir(texts map[string][]string, dir, name string) (found int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return 0, err
		}
		text := strings.TrimSpace(strings.ReplaceAll(string(content), "\r\n", "\n"))
		texts[text] = append(texts[text], name+": "+e.Name())
		found++
	}
	return found, nil
}

// render orders texts by the first place that each is from.
func render(texts map[string][]string) string {
	var b strings.Builder
	b.WriteString(noticeHeader)
	for _, places := range texts {
		slices.Sort(places)
	}
	for _, text := range slices.SortedFunc(maps.Keys(texts), func(x, y string) int {
		return cmp.Or(strings.Compare(texts[x][0], texts[y][0]), strings.Compare(x, y))
	}) {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(texts[text], "\n"), text)
	}
	return b.String()
}
