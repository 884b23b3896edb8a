// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// busybox is the shell of the initial RAM file system, statically linked.
const busybox = "/usr/bin/busybox"

// initScript is the initial RAM file system's init. The kernel hands over the command line of the
// guest's init as the variable labinit.
const initScript = `#!/bin/busybox sh
set -e
for module in $(busybox cat /modules/order); do busybox insmod /modules/$module; done
busybox mkdir -p /machine
busybox mount -t 9p -o ` + rootOptions + ` ` + rootTag + ` /machine
busybox mount -t devtmpfs dev /machine/dev
exec busybox switch_root /machine $labinit
`

// initrd returns the initial RAM file system, an archive for the kernel, which has busybox and
// the drivers that mounting the machine's files needs.
func (k Kernel) initrd() ([]byte, error) {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, fmt.Errorf("read busybox: %w", err)
	}
	modules, err := k.resolve("9pnet_virtio", "9p")
	if err != nil {
		return nil, err
	}
	var a archive
	a.folder("bin")
	a.file("bin/busybox", 0o755, program)
	a.file("init", 0o755, []byte(initScript))
	a.folder("modules")
	var order strings.Builder
	for _, path := range modules {
		content, err := os.ReadFile(filepath.Join(k.moduleTree(), path))
		if err != nil {
			return nil, fmt.Errorf("read module: %w", err)
		}
		a.file("modules/"+filepath.Base(path), 0o644, content)
		fmt.Fprintln(&order, filepath.Base(path))
	}
	a.file("modules/order", 0o644, []byte(order.String()))
	return a.end(), nil
}

// resolve returns the files of modules and of all that they depend on, in the order in which they
// can be loaded.
func (k Kernel) resolve(names ...string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(k.moduleTree(), "modules.dep"))
	if err != nil {
		return nil, fmt.Errorf("read dependencies of modules: %w", err)
	}
	return resolve(string(raw), names...)
}

// resolve reads lines as in modules.dep(5): a module, a colon, and what it depends on, the last one to
// be loaded first.
func resolve(dependencies string, names ...string) ([]string, error) {
	var files []string
	for _, name := range names {
		found := false
		for line := range strings.Lines(dependencies) {
			file, needs, _ := strings.Cut(strings.TrimSpace(line), ":")
			if moduleName(file) != name {
				continue
			}
			found = true
			order := append([]string{file}, strings.Fields(needs)...)
			slices.Reverse(order)
			for _, f := range order {
				if !slices.Contains(files, f) {
					files = append(files, f)
				}
			}
		}
		if !found {
			return nil, fmt.Errorf("resolve modules: %s is not in modules.dep", name)
		}
	}
	return files, nil
}

func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	return name
}

// archive is written as in cpio(5), in the format "newc" of an initial RAM file system.
type archive struct {
	bytes.Buffer

	files int
}

// Modes of files, as in inode(7).
const (
	modeFile   = 0o100000
	modeFolder = 0o040000
)

func (a *archive) folder(name string) { a.entry(name, modeFolder|0o755, nil) }

func (a *archive) file(name string, permissions int, content []byte) {
	a.entry(name, modeFile|permissions, content)
}

// end returns the archive.
func (a *archive) end() []byte {
	a.entry("TRAILER!!!", 0, nil)
	return a.Bytes()
}

func (a *archive) entry(name string, mode int, content []byte) {
	a.files++
	const links = 1
	a.WriteString("070701")
	for _, field := range []int{a.files, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0} {
		fmt.Fprintf(a, "%08x", field)
	}
	a.WriteString(name + "\x00")
	a.align()
	a.Write(content)
	a.align()
}

// align fills up to a multiple of four bytes.
func (a *archive) align() {
	for a.Len()%4 != 0 {
		a.WriteByte(0)
	}
}
