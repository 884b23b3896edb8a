// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/attach"
)

// publishWorkers bound the records in work at a time. They wait for the API
// server most of the time, and releases that wait together become one write.
const publishWorkers = 16

// publishTimeout bounds one attempt at a record, so that what waits for one
// network does not keep the workers from the others.
const publishTimeout = 30 * time.Second

// Publisher brings DanmEps and addresses in line with the journal, in the
// background. What to do is read from the record each time: a record that is
// released while its DanmEps are being made is worked again, by one worker.
type Publisher struct {
	host      func() (Host, bool)
	records   Records
	coverage  Coverage
	recovery  Recovery
	endpoints endpoints
	queue     workqueue.TypedRateLimitingInterface[recordKey]
	// unfinished has how often each record was queued that is not worked to its end yet.
	mu         sync.Mutex
	unfinished map[recordKey]int
	// suspects are the keys of records whose DanmEps may be gone.
	suspects sync.Map
}

// PublisherConfig is what a Publisher works with; all of it is required.
type PublisherConfig struct {
	// Client reads from the API server.
	Client client.Client
	// Records, Coverage and Recovery are the ports.
	Records  Records
	Coverage Coverage
	Recovery Recovery
	// Host answers false while the Node's UID is not known yet.
	Host func() (Host, bool)
}

var _ attach.Publisher = (*Publisher)(nil)

// recordKey is a record's key in the journal.
type recordKey struct {
	containerID, ifName string
}

// String is the key in a log line.
func (k recordKey) String() string { return k.containerID + "/" + k.ifName }

// NewPublisher returns a publisher that starts to work with Run.
func NewPublisher(c PublisherConfig) *Publisher {
	return &Publisher{
		host: c.Host, records: c.Records, coverage: c.Coverage, recovery: c.Recovery,
		endpoints:  endpoints{c: c.Client, host: c.Host},
		queue:      newQueue[recordKey](),
		unfinished: map[recordKey]int{},
	}
}

// Publish implements attach.Publisher.
func (p *Publisher) Publish(rec *attach.Record) { p.add(rec) }

// Release implements attach.Publisher.
func (p *Publisher) Release(rec *attach.Record) { p.add(rec) }

// add queues the record; a back-off of what it was before does not hold it up.
func (p *Publisher) add(rec *attach.Record) {
	key := recordKey{rec.ContainerID, rec.IfName}
	p.mu.Lock()
	p.unfinished[key]++
	p.mu.Unlock()
	p.queue.Forget(key)
	p.queue.Add(key)
}

// Run works until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	work(ctx, p.queue, publishWorkers, p.sync)
	return nil
}

// Pending is the number of records that wait, also for a retry, or are in work.
func (p *Publisher) Pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.unfinished)
}

// sync works one record as far as it is to go.
func (p *Publisher) sync(ctx context.Context, key recordKey) error {
	p.mu.Lock()
	queued := p.unfinished[key]
	p.mu.Unlock()
	if err := p.advance(ctx, key); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unfinished[key] == queued { // else it was queued again meanwhile
		delete(p.unfinished, key)
	}
	return nil
}

// advance makes one attempt at a record.
func (p *Publisher) advance(ctx context.Context, key recordKey) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	host, ok := p.host()
	if !ok {
		return fmt.Errorf("work sandbox %s: %w: the Node's UID is not known yet", key.containerID, attach.ErrTryAgain)
	}
	rec, err := p.record(ctx, key)
	switch {
	case errors.Is(err, attach.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("read record of sandbox %s: %w", key.containerID, err)
	}
	ctx = logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues(
		"pod", rec.PodNamespace+"/"+rec.PodName, "sandbox", rec.ContainerID))
	switch rec.State {
	case attach.Attached:
		return p.publish(ctx, rec, host)
	case attach.Released:
		return p.release(ctx, rec)
	}
	return nil
}

// record reads a record, as it is after a check of its DanmEps if that is due.
func (p *Publisher) record(ctx context.Context, key recordKey) (*attach.Record, error) {
	_, suspect := p.suspects.LoadAndDelete(key)
	rec, err := p.records.Get(key.containerID, key.ifName)
	if err != nil || !suspect {
		return rec, err
	}
	if rec, err = p.recheck(ctx, rec); err != nil {
		p.suspects.Store(key, nil)
	}
	return rec, err
}
