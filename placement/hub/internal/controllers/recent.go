// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

const (
	// forget is how long a cache is behind at most, as a rule: after that the API server is asked
	// whether our write was undone.
	forget = 5 * time.Second
	// reportPace is how often what clusters report is written, at most.
	reportPace = time.Second
	// staleWait is how long to wait for a cache that is behind. It doubles so often at most,
	// to 5 s, while the cache stays so.
	staleWait      = 20 * time.Millisecond
	staleDoublings = 8
)

// memory is what we remember of our last writes of an object's Assignment. It only
// saves work: a hub that starts anew does without.
type memory struct {
	uid        types.UID
	generation int64
	wrote      time.Time // the spec
	reported   time.Time // the status
	stale      int       // passes in a row that found the cache behind what is stored
}

// staleAgain is when to look again after a pass that found the cache behind: soon, and ever
// later when it stays so.
func (p *pass) staleAgain() time.Duration {
	m := p.remembered()
	wait := staleWait << m.stale
	m.stale = min(m.stale+1, staleDoublings)
	p.recent.Store(p.key, m)
	return wait
}

// fresh forgets that the cache was behind.
func (p *pass) fresh() {
	if m := p.remembered(); m.stale > 0 {
		m.stale = 0
		p.recent.Store(p.key, m)
	}
}

func (p *pass) remembered() memory {
	value, _ := p.recent.Load(p.key)
	m, _ := value.(memory)
	return m
}

// wrote remembers our own write, until the cache has it.
func (p *pass) wrote(a *v1alpha1.Assignment) {
	p.record = a
	m := p.remembered()
	m.uid, m.generation, m.wrote = a.UID, a.Generation, p.now()
	p.recent.Store(p.key, m)
}

// behind says that the cache does not have our last write yet. After a while the API server is
// asked: the Assignment may have been deleted, or etcd restored.
func (p *pass) behind(ctx context.Context) (bool, error) {
	last := p.remembered()
	missing := p.record.UID == "" || p.record.UID == last.uid && p.record.Generation < last.generation
	if !missing || last.uid == "" {
		return false, nil
	}
	if p.now().Sub(last.wrote) < forget {
		return true, nil
	}
	stored := &v1alpha1.Assignment{}
	err := p.direct.Get(ctx, p.key.assignment(), stored)
	if err != nil && !absent(err) {
		return false, fmt.Errorf("read Assignment of %s: %w", p.key, err)
	}
	if stored.UID == last.uid && stored.Generation >= last.generation {
		return true, nil
	}
	p.recent.Delete(p.key)
	return false, nil
}

// certain makes sure, before the first Work is written, that the Assignment is the one that is
// stored: the cache of a hub that starts may be filled by an API server that is behind. What this
// hub has written, or has made sure of, it knows by itself.
func (p *pass) certain(ctx context.Context) error {
	last := p.remembered()
	if p.record.UID == "" || p.record.UID == last.uid && p.record.Generation >= last.generation {
		return nil
	}
	stored := &v1alpha1.Assignment{}
	if err := p.direct.Get(ctx, p.key.assignment(), stored); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Assignment of %s: %w", p.key, err)
	}
	if stored.UID != p.record.UID || stored.Generation != p.record.Generation {
		return fmt.Errorf("read Assignment of %s: %w", p.key, errStale)
	}
	last.uid, last.generation = stored.UID, stored.Generation
	p.recent.Store(p.key, last)
	return nil
}

// due says whether a report is to be written now. Right after an order clusters are
// about to report, and many of them do so one after the other.
func (p *pass) due() bool {
	m, now := p.remembered(), p.now()
	first := m.reported.IsZero()
	if left := reportPace - now.Sub(m.reported); !first && left > 0 {
		p.again(left)
		return false
	}
	m.reported = now
	p.recent.Store(p.key, m)
	if first && p.ordered.Load() {
		p.again(reportPace)
		return false
	}
	return true
}

// again looks at the object after a while at the latest.
func (p *pass) again(after time.Duration) {
	if p.after == 0 || after < p.after {
		p.after = after
	}
}
