// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/test/source"
)

// builder is where and how a release is built.
type builder struct {
	// folder of the checkout, below a temporary one.
	folder string
	umask  string
	// private is true if only the owner may read the files of the checkout.
	private bool
	// modified is the time of each file in the checkout.
	modified time.Time
	env      []string
	// settings are those of the user's file of `go env -w`.
	settings string
}

// builders differ in all that must not matter. The second one has settings of Go that change programs.
func builders() [2]builder {
	return [2]builder{{
		folder: "a", umask: "022", modified: time.Unix(1_000_000_000, 0),
		env: []string{"TZ=UTC", "LC_ALL=C", "USER=first"},
	}, {
		folder: "another/place/for/the/source", umask: "077", private: true, modified: time.Unix(1_700_000_000, 0),
		env: []string{
			"TZ=Asia/Kathmandu", "LC_ALL=tr_TR.UTF-8", "USER=second", "LOGNAME=second", "GOMAXPROCS=1",
			"GOAMD64=v3", "GOARM64=v9.0", "GOFLAGS=-buildvcs=true -tags=netgo", "CGO_ENABLED=1",
		},
		settings: "GOEXPERIMENT=nogreenteagc\nGO_EXTLINK_ENABLED=1\n",
	}}
}

// A part of a release is built twice, by different people at different times. It has an image and an archive for one
// platform, whose packages `make build` has compiled, too. Both builds take them from Go's build cache, which does not
// know the folder, and link and pack their programs themselves. `make check-release` builds all of a release twice.
func TestReproducible(t *testing.T) {
	t.Parallel()
	if err := source.Inputs(); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "release")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -trimpath")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var releases [2]string
	begin := time.Now()
	for i, b := range builders() {
		// Archives store times with a precision of a second, or of two.
		if took := time.Since(begin); i == 1 && took < 2*time.Second {
			t.Fatalf("the first build took only %s: in an archive, the second one could have the same time", took)
		}
		checkout := filepath.Join(t.TempDir(), b.folder)
		copySource(t, b, checkout)
		settings := settingsFile(t, b.settings)
		script := fmt.Sprintf("umask %s && exec %s --version v0.0.0-test --images patchbayd --platforms linux/%s", b.umask, program, runtime.GOARCH)
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir, cmd.Env = checkout, append(append(os.Environ(), "GOENV="+settings), b.env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("release in %s: %v\n%s", b.folder, err, out)
		}
		releases[i] = filepath.Join(checkout, "bin", "release", "v0.0.0-test")
	}
	compare(t, releases[0], releases[1])
}

// settingsFile returns a file like that of `go env -w`, with further settings, which come last.
func settingsFile(t *testing.T, settings string) string {
	t.Helper()
	name, err := exec.Command("go", "env", "GOENV").Output()
	if err != nil {
		t.Fatal(err)
	}
	// Most users have no such file.
	content, err := os.ReadFile(strings.TrimSpace(string(name)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(path, []byte(string(content)+"\n"+settings), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// copySource makes a checkout with the files of the work tree, as a commit.
func copySource(t *testing.T, b builder, dir string) {
	t.Helper()
	root, err := source.Path()
	if err != nil {
		t.Fatal(err)
	}
	files, err := git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.SplitSeq(strings.Trim(files, "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, path))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		mode, folder := info.Mode().Perm()&0o111|0o644, fs.FileMode(0o755)
		if b.private {
			mode, folder = mode&0o700, 0o700
		}
		to := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(to), folder); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, read(t, root, path), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(to, b.modified, b.modified); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, dir)
}

// compare reports each file that is not the same in both folders.
func compare(t *testing.T, first, second string) {
	t.Helper()
	files := func(dir string) map[string][]byte {
		found := map[string][]byte{}
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				name := strings.TrimPrefix(path, dir+"/")
				found[name] = read(t, dir, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	a, b := files(first), files(second)
	for name, content := range a {
		if !bytes.Equal(content, b[name]) {
			t.Errorf("%s differs: it has %d bytes in one build and %d in the other", name, len(content), len(b[name]))
		}
	}
	if len(a) != len(b) || len(a) < 12 {
		t.Errorf("one build has %d files and the other %d", len(a), len(b))
	}
}
