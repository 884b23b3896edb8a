// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

const (
	// CacheDelay is how long a cache is behind at most, as a rule. After that the API server is asked
	// whether the write was undone.
	CacheDelay = 5 * time.Second
	// statusInterval is how often the status of an Assignment is written, at most.
	statusInterval = time.Second
	// firstBackoff is the first pause for a cache that is behind. It doubles maxDoublings times, to 5 s.
	firstBackoff = 20 * time.Millisecond
	maxDoublings = 8
)

// Expectations remember, for each object, the last writes of its Assignment. They only save work: a
// new leader starts without any.
type Expectations struct {
	direct client.Reader
	now    func() time.Time
	byKey  sync.Map // of expectation
}

type expectation struct {
	uid           types.UID // of the Assignment
	generation    int64     // that the cache is to have
	specWritten   time.Time
	statusWritten time.Time
	awaitsReports bool // the status waits for the reports on Works that were written
	stale         int  // reconciliations in a row that found the cache behind
}

// NewExpectations returns Expectations without any write. In doubt they ask direct.
func NewExpectations(direct client.Reader, now func() time.Time) *Expectations {
	return &Expectations{direct: direct, now: now}
}

func (e *Expectations) get(key kinds.Key) expectation {
	value, _ := e.byKey.Load(key)
	x, _ := value.(expectation)
	return x
}

// ExpectWritten records that the spec of an object's Assignment was written.
func (e *Expectations) ExpectWritten(key kinds.Key, a *v1alpha1.Assignment) {
	x := e.get(key)
	x.uid, x.generation, x.specWritten = a.UID, a.Generation, e.now()
	e.byKey.Store(key, x)
}

// Forget drops what is remembered of an object, after its Assignment was deleted.
func (e *Expectations) Forget(key kinds.Key) { e.byKey.Delete(key) }

// Satisfied reports whether a Scope has the last write. When the cache stays behind it asks the API
// server: the Assignment may have been deleted, or etcd restored from a backup.
func (e *Expectations) Satisfied(ctx context.Context, s *scope.Scope) (bool, error) {
	x, cached := e.get(s.Key), s.Assignment
	missing := cached.UID == "" || cached.UID == x.uid && cached.Generation < x.generation
	if !missing || x.uid == "" {
		return true, nil
	}
	if e.now().Sub(x.specWritten) < CacheDelay {
		return false, nil
	}
	stored := &v1alpha1.Assignment{}
	err := e.direct.Get(ctx, s.Key.Assignment(), stored)
	if err != nil && !kinds.IsObjectNotFound(err) {
		return false, fmt.Errorf("read Assignment of %s: %w", s.Key, err)
	}
	if stored.UID == x.uid && stored.Generation >= x.generation {
		return false, nil
	}
	e.Forget(s.Key)
	return true, nil
}

// Verify makes sure, before the first Work is written, that an Assignment is the stored one: an API
// server that is behind may have filled the cache of a hub that starts. It asks only about what this
// process has neither written nor verified, and returns scope.ErrStale if it is not the stored one.
func (e *Expectations) Verify(ctx context.Context, key kinds.Key, a *v1alpha1.Assignment) error {
	x := e.get(key)
	if a.UID == "" || a.UID == x.uid && a.Generation >= x.generation {
		return nil
	}
	stored := &v1alpha1.Assignment{}
	if err := e.direct.Get(ctx, key.Assignment(), stored); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Assignment of %s: %w", key, err)
	}
	if stored.UID != a.UID || stored.Generation != a.Generation {
		return fmt.Errorf("read Assignment of %s: %w", key, scope.ErrStale)
	}
	x.uid, x.generation = stored.UID, stored.Generation
	e.byKey.Store(key, x)
	return nil
}

// StatusDue reports whether the status of an Assignment is to be written now, or else when. After an
// order all clusters are about to report, one after the other: one write has their reports. A status that
// has waited once does not wait for the reports on the next order, too.
func (e *Expectations) StatusDue(key kinds.Key, worksWritten bool) (due bool, after time.Duration) {
	x, now := e.get(key), e.now()
	if left := statusInterval - now.Sub(x.statusWritten); !x.statusWritten.IsZero() && left > 0 {
		return false, left
	}
	x.statusWritten, x.awaitsReports = now, worksWritten && !x.awaitsReports
	e.byKey.Store(key, x)
	if x.awaitsReports {
		return false, statusInterval
	}
	return true, 0
}

// Backoff returns when to reconcile again after a reconciliation that found the cache behind: soon,
// and later each time it happens in a row.
func (e *Expectations) Backoff(key kinds.Key) time.Duration {
	x := e.get(key)
	pause := firstBackoff << x.stale
	x.stale = min(x.stale+1, maxDoublings)
	e.byKey.Store(key, x)
	return pause
}

// ResetBackoff records that the cache was not behind.
func (e *Expectations) ResetBackoff(key kinds.Key) {
	if x := e.get(key); x.stale > 0 {
		x.stale = 0
		e.byKey.Store(key, x)
	}
}
