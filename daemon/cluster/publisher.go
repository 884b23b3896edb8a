// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// publishWorkers bound the records in work at a time. They wait for the API
// server most of the time, and releases that wait together become one write.
const publishWorkers = 16

// publishTimeout bounds one attempt at a record, so that what waits for one
// network does not keep the workers from the others.
const publishTimeout = 30 * time.Second

// Records is the journal as the publisher needs it.
type Records interface {
	// Get returns the record, or an error that wraps attach.ErrNotFound.
	Get(containerID, ifName string) (*attach.Record, error)
	// Update changes the record in one transaction with reading it, since DEL
	// writes it too. The error wraps attach.ErrNotFound when it is gone.
	Update(containerID, ifName string, change func(*attach.Record) error) error
	// Delete removes the record; a missing one is no error.
	Delete(containerID, ifName string) error
}

// Coverage moves an address between the node's entry and a DanmEp, so that one
// of both covers it at any time (design "Who covers a bit"). Addresses may be
// invalid (zero) for a family that the interface does not have.
type Coverage interface {
	// Published says that a DanmEp covers the addresses: they may leave the
	// entry. It is called once for each claim, in each life of the daemon.
	Published(net claims.Key, v4, v6 netip.Addr)
	// Return puts the addresses back into the entry before their DanmEp goes.
	// owner is the DanmEp's name: a release that is repeated after another
	// Pod got the address is a no-op.
	Return(ctx context.Context, net claims.Key, owner string, v4, v6 netip.Addr) error
	// Free clears the bits of addresses that the entry covers, and does nothing
	// about others: a second release frees nothing.
	Free(ctx context.Context, net claims.Key, owner string, v4, v6 netip.Addr) error
	// Forget says that the record is gone: no release will be repeated.
	Forget(net claims.Key, owner string, v4, v6 netip.Addr)
}

// Publisher brings DanmEps and addresses in line with the journal, in the
// background. What to do is read from the record each time: a record that is
// released while its DanmEps are being made is worked again, by one worker.
type Publisher struct {
	host      func() (Host, bool)
	records   Records
	coverage  Coverage
	endpoints endpoints
	queue     workqueue.TypedRateLimitingInterface[recordKey]
	working   atomic.Int64
}

var _ attach.Publisher = (*Publisher)(nil)

// recordKey is a record's key in the journal.
type recordKey struct {
	containerID, ifName string
}

// String is the key in a log line.
func (k recordKey) String() string { return k.containerID + "/" + k.ifName }

// NewPublisher returns a publisher that starts to work with Run. Host answers
// false while the Node's UID is not known yet.
func NewPublisher(c client.Client, records Records, coverage Coverage, host func() (Host, bool)) *Publisher {
	return &Publisher{
		host: host, records: records, coverage: coverage,
		endpoints: endpoints{c: c},
		queue:     newQueue[recordKey](),
	}
}

// Publish implements attach.Publisher.
func (p *Publisher) Publish(rec *attach.Record) { p.add(rec) }

// Release implements attach.Publisher.
func (p *Publisher) Release(rec *attach.Record) { p.add(rec) }

// add queues the record; a back-off of what it was before does not hold it up.
func (p *Publisher) add(rec *attach.Record) {
	key := recordKey{rec.ContainerID, rec.IfName}
	p.queue.Forget(key)
	p.queue.Add(key)
}

// Run works until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	work(ctx, p.queue, publishWorkers, p.sync)
	return nil
}

// Pending is the number of records that wait or are in work, without those
// that wait for a retry.
func (p *Publisher) Pending() int {
	return p.queue.Len() + int(p.working.Load())
}

// sync works one record as far as it is to go.
func (p *Publisher) sync(ctx context.Context, key recordKey) error {
	p.working.Add(1)
	defer p.working.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	host, ok := p.host()
	if !ok {
		return fmt.Errorf("work sandbox %s: %w: the Node's UID is not known yet", key.containerID, attach.ErrTryAgain)
	}
	rec, err := p.records.Get(key.containerID, key.ifName)
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
