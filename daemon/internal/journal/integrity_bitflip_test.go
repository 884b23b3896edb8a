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

// journalOf makes a journal with n records, the first of which was deleted again, and
// returns the file and the sandboxes that it must have.
func journalOf(t *testing.T, n int) (file []byte, want []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "j")
	j := openAt(t, path)
	_, err := j.NextIncarnation()
	for i := range n {
		id := fmt.Sprint("c", i)
		rec := &attach.Record{ContainerID: id, IfName: "eth0", PodName: strings.Repeat("web", 100)}
		err = errors.Join(err, j.Put(rec), j.PutSeq("node", net(id), int64(i+1)))
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

// A flipped bit anywhere in the file is reported, or the daemon finds all records, at
// this start and after a few more writes at the next one.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	for n, everyBit := range map[int]bool{4: true, 30: false} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			file, want := journalOf(t, n)
			dir, flips := t.TempDir(), 0
			for at, b := range file {
				// The first bytes of pages, where zeros mean something, and a sample of the rest.
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
			t.Logf("%d bits", flips)
		})
	}
}

// readAll opens a file twice, with a few writes in between, and returns an error when
// neither the first nor the second time damage is reported and records are missing.
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
			return fmt.Errorf("an error that is not one of damage: %w", err)
		case missing != nil:
			return missing
		}
	}
	return nil
}

// readOnce is a daemon's start, without what makes it durable and slow.
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

// A journal of schema 1 has no digest: it gets one, and what is lost later is noticed.
func TestJournalOfSchema1(t *testing.T) {
	t.Parallel()
	path := two(t)
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		return errors.Join(meta.Delete(keyDigest), meta.Put(keySchema, []byte(schemaNoDigest)), meta.Put(keyIncarnation, []byte{0, 0, 0, 0, 0, 0, 0, 7}))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	j := openAt(t, path)
	defer func() { _ = j.Close() }()
	life, err := j.NextIncarnation()
	recs, list := j.List()
	if err := errors.Join(err, list); err != nil || life != 8 || len(recs) != 2 {
		t.Fatalf("got life %d, %d records, %v; want 8, 2, no error", life, len(recs), err)
	}
	if err := j.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketRecords).Delete([]byte("c1\x00eth0")) }); err != nil {
		t.Fatal(err)
	}
	if recs, err := j.List(); !errors.Is(err, ErrCorrupt) || len(recs) != 1 || !strings.Contains(err.Error(), "1 records can be found, 2 were written") {
		t.Errorf("a record vanished: got %d records and %v, want the other one and ErrCorrupt", len(recs), err)
	}
}

// The last commit's damaged meta page stays reported when a later commit has replaced it.
func TestLostCommitStaysReported(t *testing.T) {
	t.Parallel()
	file, _ := journalOf(t, 2)
	lost := 0
	for page := range 2 {
		damaged := bytes.Clone(file)
		damaged[page*os.Getpagesize()+metaTxID-8] ^= 1
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
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
			t.Errorf("page %d: the first start reports %v, the third %v", page, errs[0], errs[2])
		}
	}
	if lost != 1 {
		t.Errorf("damage of %d meta pages is reported, want that of the newer one only", lost)
	}
}
