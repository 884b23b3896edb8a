// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/source"
)

// scripts/check-release fails if the builds differ, and does not take the programs of the second one from the cache of
// the first one.
func TestCheckRelease(t *testing.T) {
	t.Parallel()
	root, err := source.Path()
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason, content string
		// last is a command at the end of each build.
		last string
		err  string
	}{
		"Equal":  {reason: "both builds write the same", content: "v0.1.0"},
		"Folder": {reason: "the folder of the build must not matter", content: "$PWD", err: "Files bin/release/v0.1.0/program and"},
		"Locale": {reason: "the locale must not matter", content: "$LC_ALL", err: "Files bin/release/v0.1.0/program and"},
		"Sums":   {reason: "SHA256SUMS must be that of the files", content: "v0.1.0", last: "echo more >>$out/program", err: "program: FAILED"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, path, caches := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "caches")
			writeFiles(t, dir, map[string]string{
				"scripts/check-release": readString(t, root, "scripts/check-release"), "test/sbom/go.mod": "", ".gitignore": "/bin/\n",
			})
			commit(t, dir)
			writeFiles(t, path, map[string]string{"go": strings.NewReplacer("CONTENT", tc.content, "LAST", tc.last).Replace(releaseCommand)})
			cmd := exec.Command(filepath.Join(dir, "scripts", "check-release"))
			cmd.Env = append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"), "TMPDIR="+t.TempDir(), "CACHES="+caches, "GOCACHE=/first", "LC_ALL=C")
			out, err := cmd.CombinedOutput()
			if failed := err != nil; failed != (tc.err != "") || !strings.Contains(string(out), tc.err) {
				t.Errorf("%s: got error %v, want one with %q; output:\n%s", tc.reason, err, tc.err, out)
			}
			used := strings.Fields(readString(t, filepath.Dir(caches), "caches"))
			if len(used) != 2 || used[0] != "/first" || used[1] == used[0] {
				t.Errorf("%s: the second build must have a cache of its own, got the caches %q", tc.reason, used)
			}
		})
	}
}

// releaseCommand is a go command that writes a release with one program, and adds the build cache to a list. The folder
// sbom is empty.
const releaseCommand = `#!/bin/sh
set -e
[ "$2" = ./scripts/release ] || exit 0
echo "$GOCACHE" >>"$CACHES"
out=bin/release/v0.1.0
mkdir -p "$out"
echo "CONTENT" >"$out/program"
(cd "$out" && sha256sum program >SHA256SUMS)
LAST
echo "$out: release v0.1.0 of commit 1"
`
