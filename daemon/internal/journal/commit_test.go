// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// commits returns the number of transactions of the file.
func commits(t *testing.T, j *Journal) int {
	t.Helper()
	id := 0
	if err := j.db.View(func(tx *bbolt.Tx) error { id = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return id
}

// awaitQueued polls until the open batch has n changes.
func awaitQueued(c *committer, n int) {
	for {
		c.mu.Lock()
		queued := c.open != nil && len(c.open.changes) == n
		c.mu.Unlock()
		if queued {
			return
		}
		runtime.Gosched()
	}
}

// putDuringCommit calls Put n times in parallel during another commit, and returns their errors.
func putDuringCommit(t *testing.T, j *Journal, n int) []error {
	t.Helper()
	<-j.commit.token
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = j.Put(&attach.Record{ContainerID: fmt.Sprint("c", i), IfName: "eth0"}) })
	}
	awaitQueued(j.commit, n)
	j.commit.token <- struct{}{}
	wg.Wait()
	return errs
}

// Puts that come during a commit share the next one.
func TestPutsShareACommit(t *testing.T) {
	t.Parallel()
	j, err := Open(filepath.Join(t.TempDir(), "j"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	before := commits(t, j)
	if err := errors.Join(putDuringCommit(t, j, 16)...); err != nil {
		t.Fatal(err)
	}
	if got := commits(t, j) - before; got != 1 {
		t.Errorf("16 Puts during a commit: got %d further commits, want 1", got)
	}
	if recs, err := j.List(); err != nil || len(recs) != 16 {
		t.Errorf("List: got %d records and %v, want 16", len(recs), err)
	}
}

// A failed commit fails all its Puts.
func TestFailedCommitFailsAllPuts(t *testing.T) {
	t.Parallel()
	j, err := Open(filepath.Join(t.TempDir(), "j"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for i, err := range putDuringCommit(t, j, 8) {
		if err == nil {
			t.Errorf("Put %d of a failed commit: got no error", i)
		}
	}
}
