// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// createJournalFile creates a journal with n records, of which it deletes the first. It returns the file
// and the sandboxes of the remaining records.
func createJournalFile(t *testing.T, n int) (file []byte, want []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "j")
	j := openAt(t, path)
	_, err := j.NextIncarnation()
	for i := range n {
		id := fmt.Sprint("c", i)
		rec := &attach.Record{ContainerID: id, IfName: "eth0", PodName: strings.Repeat("web", 100)}
		err = errors.Join(err, j.Put(rec), j.PutSeq("node", networkKey(id), int64(i+1)))
		want = append(want, id)
	}
	if err := errors.Join(err, j.Delete("c0", "eth0"), j.Close()); err != nil {
		t.Fatal(err)
	}
	file, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file, want[1:]
}

// After any flipped bit in the file, the daemon reports corruption or finds all records, at its start and,
// after some writes, at the next start.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	for n, everyBit := range map[int]bool{4: true, 30: false} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			file, want := createJournalFile(t, n)
			dir, flips := t.TempDir(), 0
			for at, b := range file {
				// The headers of pages, in which zeros have a meaning, and a sample of the rest.
				if offset := at % os.Getpagesize(); offset >= 64 && (b == 0 || offset%41 != 0) {
					continue
				}
				for bit := range 8 {
					if !everyBit && bit != at%8 {
						continue
					}
					file[at] ^= 1 << bit
					path := filepath.Join(dir, fmt.Sprint(at, "-", bit))
					if err := readAll(t, path, file, want); err != nil {
						t.Errorf("bit %d of byte %d in page %d: %v", bit, at%os.Getpagesize(), at/os.Getpagesize(), err)
					}
					file[at] ^= 1 << bit
					_ = os.Remove(path)
					flips++
				}
			}
			t.Logf("%d bits were flipped", flips)
		})
	}
}

// readAll opens a file twice, with some writes between. It returns an error when records are missing
// without a report of corruption.
func readAll(t *testing.T, path string, file []byte, want []string) error {
	t.Helper()
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var missing error
		err := catchPanic(func() (err error) {
			missing, err = readOnce(path, want)
			return err
		})
		switch {
		case errors.Is(err, ErrCorrupt), errors.Is(err, ErrSchema):
			return nil
		case err != nil:
			return fmt.Errorf("an error that does not report corruption: %w", err)
		case missing != nil:
			return missing
		}
	}
	return nil
}

// readOnce opens a journal as a daemon does, without syncs.
func readOnce(path string, want []string) (missing, err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, NoGrowSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, asCorrupt(err)
	}
	if err := prepareFile(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	j := &Journal{db: db, holder: path + ".holder", commit: newCommitter(db)}
	_, err = j.NextIncarnation()
	recs, list := j.List()
	if err := errors.Join(err, list); err != nil {
		return nil, errors.Join(err, catchPanic(j.Close))
	}
	for _, id := range want {
		if !slices.ContainsFunc(recs, func(r *attach.Record) bool { return r.ContainerID == id }) {
			missing = errors.Join(missing, fmt.Errorf("no record of %s", id))
		}
		if _, err := j.Get(id, "eth0"); err != nil {
			missing = errors.Join(missing, err)
		}
	}
	for _, id := range []string{"d1", "d2"} {
		err = errors.Join(err, j.Put(&attach.Record{ContainerID: id, IfName: "eth0", PodName: strings.Repeat("new", 500)}))
	}
	return missing, errors.Join(err, j.Delete("d1", "eth0"), catchPanic(j.Close))
}

// A journal of schema 1 has no digest. Open adds one, which reports records that are lost later.
func TestJournalOfSchema1(t *testing.T) {
	t.Parallel()
	path := createJournal(t)
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte(bucketMeta))
		return errors.Join(meta.Delete([]byte(keyDigest)), meta.Put([]byte(keySchema), []byte(schemaNoDigest)), meta.Put([]byte(keyIncarnation), []byte{0, 0, 0, 0, 0, 0, 0, 7}))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	j := openAt(t, path)
	defer func() { _ = j.Close() }()
	incarnation, err := j.NextIncarnation()
	recs, list := j.List()
	if err := errors.Join(err, list); err != nil || incarnation != 8 || len(recs) != 2 {
		t.Fatalf("got incarnation %d, %d records and error %v, want 8, 2 and none", incarnation, len(recs), err)
	}
	if err := j.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucketRecords)).Delete([]byte("c1\x00eth0")) }); err != nil {
		t.Fatal(err)
	}
	if recs, err := j.List(); !errors.Is(err, ErrCorrupt) || len(recs) != 1 || !strings.Contains(err.Error(), "found 1 records, must be 2") {
		t.Errorf("after a lost record: got %d records and error %v, want the other one and ErrCorrupt", len(recs), err)
	}
}

// A corrupt meta page of the last commit is still reported after a later commit has overwritten it.
func TestLostCommitStaysReported(t *testing.T) {
	t.Parallel()
	file, _ := createJournalFile(t, 2)
	lost := 0
	for page := range 2 {
		corrupt := bytes.Clone(file)
		corrupt[page*os.Getpagesize()+metaTxID-8] ^= 1
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, corrupt, 0o600); err != nil {
			t.Fatal(err)
		}
		var errs []error
		for range 3 {
			j := openAt(t, path)
			_, err := j.NextIncarnation()
			_, list := j.List()
			errs = append(errs, list)
			if err := errors.Join(err, j.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if errors.Is(errs[0], ErrCorrupt) {
			lost++
		}
		if errors.Is(errs[0], ErrCorrupt) != errors.Is(errs[2], ErrCorrupt) {
			t.Errorf("page %d: got %v at the first start and %v at the third, want the same", page, errs[0], errs[2])
		}
	}
	if lost != 1 {
		t.Errorf("got reports of %d corrupt meta pages, want only that of the newer one", lost)
	}
}
