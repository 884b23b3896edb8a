// SPDX-License-Identifier: Apache-2.0

package danmep

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/daemon/internal/nodestate"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Publisher brings DanmEps and addresses in line with the journal, in the background. It reads
// the record each time it processes one. A record that is released while its DanmEps are being
// created is processed again, by one worker at a time.
type Publisher struct {
	node     func() (nodestate.Identity, bool)
	records  Records
	coverage Coverage
	recovery MissingObserver
	danmEps  danmEpClient
	queue    workqueue.TypedRateLimitingInterface[attach.RecordKey]

	mu sync.Mutex // guards unfinished and failures
	// unfinished has the records in the queue, in work or waiting for a retry, and how often
	// each was queued.
	unfinished map[attach.RecordKey]int
	// failures has the errors of the records that wait for a retry.
	failures map[attach.RecordKey]error
	// recheckDue has the keys of the records whose DanmEps may be gone.
	recheckDue sync.Map
}

// PublisherConfig has the dependencies of a Publisher. All are required.
type PublisherConfig struct {
	// Client sends each request to the API server, not to a cache.
	Client client.Client
	// Records is the journal.
	Records Records
	// Coverage and Recovery are the node's allocator.
	Coverage Coverage
	Recovery MissingObserver
	// Node returns this node, and false until the Node was read.
	Node func() (nodestate.Identity, bool)
}

// Records reads and writes the records of the journal.
type Records interface {
	// Get returns the record, or an error that wraps attach.ErrNotFound.
	Get(containerID, ifName string) (*attach.Record, error)
	// Update reads and changes the record in one transaction, because DEL writes it too. The
	// error wraps attach.ErrNotFound when the record is gone.
	Update(containerID, ifName string, change func(*attach.Record) error) error
	// Delete removes the record. A missing record is no error.
	Delete(containerID, ifName string) error
}

// Coverage moves addresses between the node's entry in a network's status and a DanmEp, so that
// one of them covers each address at any time. An address is the zero value for a family that
// the interface does not have. The owner is the DanmEp's name.
type Coverage interface {
	// MarkPublished reports that the DanmEp covers the addresses, which may now leave the entry. It
	// is called once for each claim in each incarnation of the daemon.
	MarkPublished(net network.Key, owner string, v4, v6 netip.Addr)
	// ReturnToEntry puts the addresses back into the entry before their DanmEp is deleted. It does
	// nothing when the addresses have another owner already, as in a repeated release.
	ReturnToEntry(ctx context.Context, net network.Key, owner string, v4, v6 netip.Addr) error
	// Free clears the bits of the addresses that the entry covers, and only of these, so that a
	// repeated release frees nothing. It is called for interfaces without addresses too,
	// because such an interface keeps the entry as well.
	Free(ctx context.Context, net network.Key, owner string, v4, v6 netip.Addr) error
	// Forget reports that the record is gone, so that its release is not repeated.
	Forget(net network.Key, owner string, v4, v6 netip.Addr)
}

// MissingObserver receives the DanmEps that the API server has lost.
type MissingObserver interface {
	// DanmEpMissing reports that a DanmEp is gone that this node did not delete. The entry must cover
	// the addresses again.
	DanmEpMissing(net network.Key, owner string, v4, v6 netip.Addr)
}

// NewPublisher returns a Publisher that works while Run runs.
func NewPublisher(c PublisherConfig) *Publisher {
	return &Publisher{
		node: c.Node, records: c.Records, coverage: c.Coverage, recovery: c.Recovery,
		danmEps:    danmEpClient{client: c.Client, node: c.Node},
		queue:      kubeclient.NewQueue[attach.RecordKey](),
		unfinished: map[attach.RecordKey]int{},
		failures:   map[attach.RecordKey]error{},
	}
}

// Publish implements attach.Publisher.
func (p *Publisher) Publish(rec *attach.Record) { p.enqueue(rec) }

// Release implements attach.Publisher.
func (p *Publisher) Release(rec *attach.Record) { p.enqueue(rec) }

// Recheck makes the Publisher read the DanmEps of a record and create the missing ones again. It
// returns at once.
func (p *Publisher) Recheck(rec *attach.Record) {
	p.recheckDue.Store(rec.Key(), nil)
	p.enqueue(rec)
}

// enqueue queues the record without the back-off of its earlier failures.
func (p *Publisher) enqueue(rec *attach.Record) {
	key := rec.Key()
	p.mu.Lock()
	p.unfinished[key]++
	p.mu.Unlock()
	p.queue.Forget(key)
	p.queue.Add(key)
}

// Pending returns the number of records that are queued, in work or waiting for a retry.
func (p *Publisher) Pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.unfinished)
}

// Failure returns the error of the last attempt at a record, or nil if it had none.
func (p *Publisher) Failure(key attach.RecordKey) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failures[key]
}

// publishWorkers is how many records are in work at a time. Workers mostly wait for the API
// server, and one write frees the addresses of several releases.
const publishWorkers = 16

// Run processes records until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	kubeclient.RunWorkers(ctx, p.queue, publishWorkers, p.sync)
	return nil
}

// sync processes one record, and removes it from unfinished on success.
func (p *Publisher) sync(ctx context.Context, key attach.RecordKey) error {
	p.mu.Lock()
	queued := p.unfinished[key]
	p.mu.Unlock()
	err := p.syncRecord(ctx, key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failures[key] = err
		return err
	}
	delete(p.failures, key)
	if p.unfinished[key] == queued { // otherwise it was queued again meanwhile
		delete(p.unfinished, key)
	}
	return nil
}

// publishTimeout bounds one attempt at a record, so that records of one blocked network do not
// block all workers.
const publishTimeout = 30 * time.Second

// syncRecord makes one attempt at a record.
func (p *Publisher) syncRecord(ctx context.Context, key attach.RecordKey) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	node, ok := p.node()
	if !ok {
		return fmt.Errorf("publish sandbox %s: %w: the Node was not read yet", key.ContainerID, attach.ErrTryAgain)
	}
	rec, err := p.readRecord(ctx, key)
	switch {
	case errors.Is(err, attach.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("read record of sandbox %s: %w", key.ContainerID, err)
	}
	ctx = logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues(
		"pod", rec.PodNamespace+"/"+rec.PodName, "sandbox", rec.ContainerID))
	switch rec.State {
	case attach.Attached:
		return p.publish(ctx, rec, node)
	case attach.Released:
		return p.release(ctx, rec)
	}
	return nil
}

// readRecord reads a record. If a recheck is due, it first marks the missing DanmEps.
func (p *Publisher) readRecord(ctx context.Context, key attach.RecordKey) (*attach.Record, error) {
	_, recheck := p.recheckDue.LoadAndDelete(key)
	rec, err := p.records.Get(key.ContainerID, key.IfName)
	if err != nil || !recheck {
		return rec, err
	}
	if rec, err = p.markMissing(ctx, rec); err != nil {
		p.recheckDue.Store(key, nil)
	}
	return rec, err
}

// markMissing finds the DanmEps of a record that are gone, clears their UIDs in the journal, and
// makes the allocator cover their addresses again. It returns the record after this change. Only
// the record's worker may call it, so that a release comes before or after it.
func (p *Publisher) markMissing(ctx context.Context, rec *attach.Record) (*attach.Record, error) {
	missing, err := p.missingDanmEps(ctx, rec)
	if err != nil || len(missing) == 0 {
		return rec, err
	}
	var marked []attach.Interface
	err = p.records.Update(rec.ContainerID, rec.IfName, func(r *attach.Record) error {
		marked = nil
		for i := range r.Interfaces {
			ifc := &r.Interfaces[i]
			if recordHasDanmEp(r, ifc) && missing[ifc.EndpointName] == ifc.EndpointUID {
				ifc.EndpointUID = ""
				marked = append(marked, *ifc)
			}
		}
		rec = r
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("journal the missing DanmEps of sandbox %s: %w", rec.ContainerID, err)
	}
	for i := range marked {
		ifc := &marked[i]
		logr.FromContextOrDiscard(ctx).Info("Found a DanmEp missing that this daemon did not delete, will create it again",
			"danmep", rec.PodNamespace+"/"+ifc.EndpointName, "network", ifc.Network.Ref.String())
		p.recovery.DanmEpMissing(network.KeyOf(&ifc.Network), ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr())
	}
	return rec, nil
}

// missingDanmEps reads the DanmEps of a record and returns the UIDs of the missing ones by name. The others get the
// finalizer if they lack it: without it, their deletion would free addresses of a sandbox that runs.
func (p *Publisher) missingDanmEps(ctx context.Context, rec *attach.Record) (map[string]string, error) {
	missing := map[string]string{}
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if !recordHasDanmEp(rec, ifc) {
			continue
		}
		key := client.ObjectKey{Namespace: rec.PodNamespace, Name: ifc.EndpointName}
		ep, err := p.danmEps.find(ctx, key, ifc.EndpointName, types.UID(ifc.EndpointUID))
		if err != nil {
			return nil, err
		}
		if ep == nil {
			missing[ifc.EndpointName] = ifc.EndpointUID
			continue
		}
		if err := p.danmEps.protect(ctx, ep); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// publish creates the DanmEps that the record lacks, journals their UIDs, and only then lets
// their addresses leave the node's entry.
func (p *Publisher) publish(ctx context.Context, rec *attach.Record, node nodestate.Identity) error {
	created, err := p.createMissing(ctx, rec, node)
	if len(created) > 0 {
		journalErr := p.records.Update(rec.ContainerID, rec.IfName, func(r *attach.Record) error {
			for i := range r.Interfaces {
				if uid := created[r.Interfaces[i].EndpointName]; uid != "" {
					r.Interfaces[i].EndpointUID = uid
				}
			}
			return nil
		})
		if journalErr != nil {
			return errors.Join(err, fmt.Errorf("journal DanmEps of sandbox %s: %w", rec.ContainerID, journalErr))
		}
	}
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if created[ifc.EndpointName] != "" {
			p.coverage.MarkPublished(network.KeyOf(&ifc.Network), ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr())
		}
	}
	return err
}

// createMissing creates the DanmEps that the record lacks in parallel. It returns the UIDs of the
// new ones by name, also when other creates failed.
func (p *Publisher) createMissing(ctx context.Context, rec *attach.Record, node nodestate.Identity) (map[string]string, error) {
	uids := make([]string, len(rec.Interfaces))
	var group errgroup.Group
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if ifc.EndpointUID != "" {
			continue
		}
		group.Go(func() error {
			uid, err := p.danmEps.create(ctx, newDanmEp(rec, ifc, node))
			if namespaceGone(err) {
				// The address stays in the node's entry until DEL.
				logr.FromContextOrDiscard(ctx).Info("Skipped a DanmEp, because its namespace is being deleted", "interface", ifc.Name)
				return nil
			}
			uids[i] = string(uid)
			return err
		})
	}
	err := group.Wait()
	created := map[string]string{}
	for i, uid := range uids {
		if uid != "" {
			created[rec.Interfaces[i].EndpointName] = uid
		}
	}
	return created, err
}

// namespaceGone reports whether a create failed because its namespace is deleted or being deleted.
// Such a create cannot succeed. A kind that is not found may come back, when its
// CustomResourceDefinition is installed again.
func namespaceGone(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) &&
		status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// release frees the addresses and DanmEps of a sandbox, and then deletes its record.
func (p *Publisher) release(ctx context.Context, rec *attach.Record) error {
	var group errgroup.Group
	for i := range rec.Interfaces {
		group.Go(func() error { return p.releaseInterface(ctx, rec, &rec.Interfaces[i]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := p.records.Delete(rec.ContainerID, rec.IfName); err != nil {
		return fmt.Errorf("delete record of sandbox %s: %w", rec.ContainerID, err)
	}
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		p.coverage.Forget(network.KeyOf(&ifc.Network), ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr())
	}
	return nil
}

// releaseInterface frees the addresses and the DanmEp of one interface. It may be repeated after a
// crash at any point. Only an existing DanmEp proves that its addresses still belong to the
// interface, and may return to the entry. Without one, Free frees only what the entry covers.
func (p *Publisher) releaseInterface(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	net := network.KeyOf(&ifc.Network)
	key := client.ObjectKey{Namespace: rec.PodNamespace, Name: ifc.EndpointName}
	ep, err := p.danmEps.find(ctx, key, ifc.EndpointName, types.UID(ifc.EndpointUID))
	if err != nil {
		return err
	}
	if ep != nil {
		if err := p.coverage.ReturnToEntry(ctx, net, ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr()); err != nil {
			return fmt.Errorf("return addresses of %s to the node's entry: %w", key, err)
		}
		if err := p.danmEps.remove(ctx, ep); err != nil {
			return err
		}
	}
	if err := p.coverage.Free(ctx, net, ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr()); err != nil {
		return fmt.Errorf("free addresses of %s: %w", key, err)
	}
	return nil
}

var _ attach.Publisher = (*Publisher)(nil)
