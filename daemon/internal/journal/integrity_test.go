// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// writeKey writes a key of a bucket without the journal.
func writeKey(t *testing.T, path string, bucket, key, value []byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put(key, value) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// createJournal creates a journal with the records c1 and c2, and returns its path.
func createJournal(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "j")
	j, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"c1", "c2"} {
		if err := j.Put(&attach.Record{ContainerID: id, IfName: "eth0"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// A corrupt record is reported with its key, and the other records are readable.
func TestCorruptRecord(t *testing.T) {
	t.Parallel()
	good, err := encodeRecord(&attach.Record{ContainerID: "c2", IfName: "eth0", PodName: "web"})
	if err != nil {
		t.Fatal(err)
	}
	notJSON := append([]byte{0, 0, 0, 0}, "{"...)
	cases := map[string]struct {
		reason string
		value  []byte
	}{
		"Empty":   {"The value has no checksum.", []byte{}},
		"Short":   {"The value has a part of a checksum.", []byte{1, 2}},
		"Flipped": {"A flipped bit can leave valid JSON.", bytes.Replace(good, []byte("web"), []byte("wec"), 1)},
		"NotJSON": {"The value has no complete JSON.", notJSON},
		"Moved":   {"The value is the record of another sandbox.", good},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := createJournal(t)
			writeKey(t, path, []byte(bucketRecords), []byte("c1\x00eth0"), tc.value)
			j, err := Open(path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = j.Close() }()
			if _, err := j.Get("c1", "eth0"); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "c1/eth0") {
				t.Errorf("%s: Get: got %v, want ErrCorrupt that names c1/eth0", tc.reason, err)
			}
			recs, err := j.List()
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "c1/eth0") {
				t.Errorf("%s: List: got %v, want ErrCorrupt that names c1/eth0", tc.reason, err)
			}
			if len(recs) != 1 || recs[0].ContainerID != "c2" {
				t.Errorf("%s: List: got %v, want the readable record", tc.reason, recs)
			}
			if err := j.Delete("c1", "eth0"); err != nil {
				t.Errorf("%s: Delete of the corrupt record: %v", tc.reason, err)
			}
		})
	}
}

// Open rejects a journal of a newer schema.
func TestOtherSchema(t *testing.T) {
	t.Parallel()
	path := createJournal(t)
	writeKey(t, path, []byte(bucketMeta), []byte(keySchema), []byte("3"))
	_, err := Open(path, Options{})
	if !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), `"3"`) || !strings.Contains(err.Error(), `"2"`) {
		t.Errorf("Open of a newer journal: got %v, want ErrSchema with both versions", err)
	}
}

// The journal returns errors and does not panic when pages are overwritten, removed or truncated.
func TestCorruptFile(t *testing.T) {
	t.Parallel()
	intact, err := os.ReadFile(createJournal(t))
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	dir := t.TempDir()
	for at := 0; at < len(intact); at += page {
		for name, content := range map[string][]byte{
			"truncated": intact[:at+page/2],
			"zeroed":    overwrite(intact, at, page, 0),
			"ones":      overwrite(intact, at, page, 0xff),
			"shifted":   append(bytes.Clone(intact[:at]), intact[min(at+page, len(intact)):]...),
		} {
			path := filepath.Join(dir, "j")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := useJournal(path); err != nil && strings.Contains(err.Error(), "goroutine") {
				t.Errorf("page %d %s: got a stack trace in the error: %v", at/page, name, err)
			}
		}
	}
}

// useJournal opens a journal, lists records and puts one.
func useJournal(path string) error {
	j, err := Open(path, Options{})
	if err != nil {
		return err
	}
	_, list := j.List()
	put := j.Put(&attach.Record{ContainerID: "c3", IfName: "eth0"})
	return errors.Join(list, put, j.Close())
}

// overwrite returns a copy with n bytes at an offset set to b.
func overwrite(intact []byte, at, n int, b byte) []byte {
	out := bytes.Clone(intact)
	copy(out[at:], bytes.Repeat([]byte{b}, n))
	return out
}

// Open rejects a file that is no journal.
func TestNotAJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	if err := os.WriteFile(path, bytes.Repeat([]byte("not a journal\n"), 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) {
		t.Errorf("Open of another file: got %v, want ErrCorrupt and the path", err)
	}
}

// A lock without a holder file has an unknown holder.
func TestUnknownHolder(t *testing.T) {
	t.Parallel()
	if got := readHolder(filepath.Join(t.TempDir(), "none")); got == "" {
		t.Error("readHolder without a file: got an empty text, want one")
	}
}

// BootID returns the same ID until the next boot.
func TestBootID(t *testing.T) {
	t.Parallel()
	first, err := BootID()
	if err != nil || first == "" || strings.TrimSpace(first) != first {
		t.Fatalf("BootID: got %q, %v", first, err)
	}
	if second, err := BootID(); err != nil || second != first {
		t.Errorf("second BootID: got %q and error %v, want %q", second, err, first)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{empty, empty + ".none"} {
		if id, err := readBootID(path); err == nil {
			t.Errorf("readBootID(%s): got %q, want an error", path, id)
		}
	}
}
