// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// Concurrent updates of a record are all applied.
func TestConcurrentUpdates(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"))
	if err := j.Put(record("c", "eth0")); err != nil {
		t.Fatal(err)
	}
	const n = 32
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			err := j.Update("c", "eth0", func(r *attach.Record) error {
				r.Labels[fmt.Sprint("k", i)] = "v"
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := j.Get("c", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	if want := n + len(record("c", "eth0").Labels); len(got.Labels) != want {
		t.Errorf("got %d labels after %d updates, want %d", len(got.Labels), n, want)
	}
}

// An update whose edit fails leaves the record unchanged.
func TestFailedUpdateChangesNothing(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"))
	want := record("c", "eth0")
	if err := j.Put(want); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	err := j.Update("c", "eth0", func(r *attach.Record) error { r.State = attach.Released; return stop })
	if !errors.Is(err, stop) {
		t.Errorf("got error %v, want that of the edit", err)
	}
	got, err := j.Get("c", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, comparePrefixes); diff != "" {
		t.Errorf("record after a failed update (-want +got):\n%s", diff)
	}
	err = j.Update("none", "eth0", func(*attach.Record) error { return nil })
	if !errors.Is(err, attach.ErrNotFound) {
		t.Errorf("update of a missing record: got error %v, want ErrNotFound", err)
	}
}

// The number of daemon starts is kept across starts.
func TestLivesAreCountedAcrossStarts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	for want := int64(1); want <= 3; want++ {
		j := open(t, path)
		got, err := j.NextIncarnation()
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("start %d: got number %d", want, got)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
