// SPDX-License-Identifier: Apache-2.0

package pending_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/internal/pending"
)

func del(id string) *wire.Request {
	return &wire.Request{Command: "DEL", ContainerID: id, IfName: "eth0", Netns: "/run/netns/x", Config: []byte(`{"name":"n"}`)}
}

func TestWriteReadRemove(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "pending")
	want := del("../../etc/passwd")
	for range 2 { // the second is a repeated DEL
		if err := pending.Write(dir, want); err != nil {
			t.Fatal(err)
		}
	}
	names, err := pending.List(dir)
	if err != nil || len(names) != 1 {
		t.Fatalf("List: got %v, %v, want one file", names, err)
	}
	got, err := pending.Read(dir, names[0])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Read: -want +got:\n%s", diff)
	}
	for range 2 {
		if err := pending.Remove(dir, names[0]); err != nil {
			t.Errorf("Remove: %v", err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("after Remove: got %v, %v, want an empty directory", left, err)
	}
}

func TestMissingDirectoryIsEmpty(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	if names, err := pending.List(dir); err != nil || names != nil {
		t.Errorf("List: got %v, %v", names, err)
	}
	if err := pending.RemoveStalePartials(dir, time.Now()); err != nil {
		t.Errorf("RemoveStalePartials: %v", err)
	}
	if err := pending.Remove(dir, "x.json"); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if _, err := pending.Read(dir, "x.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read: got %v, want fs.ErrNotExist", err)
	}
}

func TestFullDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range pending.MaxFiles {
		name := filepath.Join(dir, pending.FileName(fmt.Sprint("c", i), "eth0"))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := pending.Write(dir, del("one-more")); !errors.Is(err, pending.ErrFull) {
		t.Errorf("Write into a full directory: got %v, want ErrFull", err)
	}
	if err := pending.Write(dir, del("c7")); err != nil {
		t.Errorf("a repeated DEL replaces its file: %v", err)
	}
}

// Sixteen plugins write at once, some of them for the same sandbox.
func TestConcurrentWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if err := pending.Write(dir, del(fmt.Sprint("c", i%4))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	names, err := pending.List(dir)
	if err != nil || len(names) != 4 {
		t.Errorf("List: got %v, %v, want 4 files", names, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 4 {
		t.Errorf("partial files are left: %v", left)
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	name := pending.FileName("c", "eth0")
	cases := map[string]struct{ reason, content string }{
		"Empty":   {"A disk failure emptied the file.", ""},
		"Half":    {"The file is truncated.", `{"command":"DEL","containerID":"c"`},
		"Another": {"The file has the name of another sandbox.", `{"command":"DEL","containerID":"d","ifName":"eth0"}`},
		"Huge":    {"No more than the size of a request is read.", strings.Repeat(" ", 3*wire.MaxFrame) + "{}"},
	}
	for test, tc := range cases {
		t.Run(test, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := pending.Read(dir, name); !errors.Is(err, pending.ErrMalformed) || !strings.Contains(err.Error(), name) {
				t.Fatalf("%s Read got %v, want ErrMalformed that names %s", tc.reason, err, name)
			}
			if err := pending.SetAside(dir, name); err != nil {
				t.Fatal(err)
			}
			if names, err := pending.List(dir); err != nil || len(names) != 0 {
				t.Errorf("%s List after SetAside: got %v, %v, want none", tc.reason, names, err)
			}
			if left, _ := os.ReadDir(dir); len(left) != 1 {
				t.Errorf("%s SetAside must keep the file", tc.reason)
			}
		})
	}
}

func TestRemoveStalePartials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := pending.Write(dir, del("c")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".partial-1", ".partial-2"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := pending.RemoveStalePartials(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("RemoveStalePartials removed files that may have a writer: left %v", left)
	}
	if err := pending.RemoveStalePartials(dir, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 1 || left[0].Name() != pending.FileName("c", "eth0") {
		t.Errorf("RemoveStalePartials an hour later: left %v, want the complete file only", left)
	}
}

func TestWriteErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := pending.Write(file, del("c")); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("Write to a file as the directory: got %v, want its path", err)
	}
	if err := pending.Write(t.TempDir(), &wire.Request{Command: "DEL", Config: []byte("{")}); err == nil {
		t.Error("Write of a configuration that is not JSON: got no error")
	}
}
