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

// commits is how many transactions the file has seen.
func commits(t *testing.T, j *Journal) int {
	t.Helper()
	id := 0
	if err := j.db.View(func(tx *bbolt.Tx) error { id = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return id
}

// waiting polls until n changes are in the open batch.
func waiting(c *committer, n int) {
	for {
		c.mu.Lock()
		there := c.open != nil && len(c.open.changes) == n
		c.mu.Unlock()
		if there {
			return
		}
		runtime.Gosched()
	}
}

// held makes n Puts while another commit is running and lets them go.
func held(t *testing.T, j *Journal, n int) []error {
	t.Helper()
	<-j.commit.token
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = j.Put(&attach.Record{ContainerID: fmt.Sprint("c", i), IfName: "eth0"}) })
	}
	waiting(j.commit, n)
	j.commit.token <- struct{}{}
	wg.Wait()
	return errs
}

func TestSixteenShareACommit(t *testing.T) {
	t.Parallel()
	j, err := Open(filepath.Join(t.TempDir(), "j"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	before := commits(t, j)
	if err := errors.Join(held(t, j, 16)...); err != nil {
		t.Fatal(err)
	}
	if got := commits(t, j) - before; got != 1 {
		t.Errorf("16 Puts that waited together: got %d commits, want 1", got)
	}
	if recs, err := j.List(); err != nil || len(recs) != 16 {
		t.Errorf("List: got %d records and %v, want 16", len(recs), err)
	}
}

// When the commit fails nobody is told that the record is on disk.
func TestAllHearOfAFailedCommit(t *testing.T) {
	t.Parallel()
	j, err := Open(filepath.Join(t.TempDir(), "j"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for i, err := range held(t, j, 8) {
		if err == nil {
			t.Errorf("Put %d of a failed commit: got no error", i)
		}
	}
}
