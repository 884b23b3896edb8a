// SPDX-License-Identifier: Apache-2.0

package cluster

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
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Publisher brings DanmEps and addresses in line with the journal, in the
// background. What to do is read from the record each time: a record that is
// released while its DanmEps are being made is worked again, by one worker.
type Publisher struct {
	node     func() (NodeIdentity, bool)
	records  Records
	coverage Coverage
	recovery MissingObserver
	danmEps  danmEpClient
	queue    workqueue.TypedRateLimitingInterface[recordKey]
	// unfinished has how often each record was queued that is not worked to its end yet.
	mu         sync.Mutex
	unfinished map[recordKey]int
	// recheckDue are the keys of records whose DanmEps may be gone.
	recheckDue sync.Map
}

// PublisherConfig is what a Publisher works with; all of it is required.
type PublisherConfig struct {
	// Client reads from the API server.
	Client client.Client
	// Records, Coverage and Recovery are the ports.
	Records  Records
	Coverage Coverage
	Recovery MissingObserver
	// Node answers false while the Node's UID is not known yet.
	Node func() (NodeIdentity, bool)
}

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
	// Published says that a DanmEp, the owner, covers the addresses: they may
	// leave the entry. It is called once for each claim, in each life of the daemon.
	Published(net claims.Key, owner string, v4, v6 netip.Addr)
	// Return puts the addresses back into the entry before their DanmEp goes.
	// owner is the DanmEp's name: a release that is repeated after another
	// Pod got the address is a no-op.
	Return(ctx context.Context, net claims.Key, owner string, v4, v6 netip.Addr) error
	// Free clears the bits of addresses that the entry covers, and does nothing
	// about others: a second release frees nothing. It is called for interfaces
	// without addresses, too: they have kept the entry.
	Free(ctx context.Context, net claims.Key, owner string, v4, v6 netip.Addr) error
	// Forget says that the record is gone: no release will be repeated.
	Forget(net claims.Key, owner string, v4, v6 netip.Addr)
}

// MissingObserver is told what the API server has lost.
type MissingObserver interface {
	// Missing says that a DanmEp that covered the addresses is gone though this node
	// did not remove it: they are to be covered by the entry again.
	Missing(net claims.Key, owner string, v4, v6 netip.Addr)
}

// recordKey is a record's key in the journal.
type recordKey struct {
	containerID, ifName string
}

// String is the key in a log line.
func (k recordKey) String() string { return k.containerID + "/" + k.ifName }

// NewPublisher returns a publisher that starts to work with Run.
func NewPublisher(c PublisherConfig) *Publisher {
	return &Publisher{
		node: c.Node, records: c.Records, coverage: c.Coverage, recovery: c.Recovery,
		danmEps:    danmEpClient{client: c.Client, node: c.Node},
		queue:      newQueue[recordKey](),
		unfinished: map[recordKey]int{},
	}
}

// Publish implements attach.Publisher.
func (p *Publisher) Publish(rec *attach.Record) { p.enqueue(rec) }

// Release implements attach.Publisher.
func (p *Publisher) Release(rec *attach.Record) { p.enqueue(rec) }

// Recheck makes the publisher read whether the DanmEps of a record are there, and
// create those again that are not. It returns at once.
func (p *Publisher) Recheck(rec *attach.Record) {
	p.recheckDue.Store(recordKey{rec.ContainerID, rec.IfName}, nil)
	p.enqueue(rec)
}

// enqueue queues the record; a back-off of what it was before does not hold it up.
func (p *Publisher) enqueue(rec *attach.Record) {
	key := recordKey{rec.ContainerID, rec.IfName}
	p.mu.Lock()
	p.unfinished[key]++
	p.mu.Unlock()
	p.queue.Forget(key)
	p.queue.Add(key)
}

// Pending is the number of records that wait, also for a retry, or are in work.
func (p *Publisher) Pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.unfinished)
}

// publishWorkers bound the records in work at a time. They wait for the API
// server most of the time, and releases that wait together become one write.
const publishWorkers = 16

// Run works until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	runWorkers(ctx, p.queue, publishWorkers, p.sync)
	return nil
}

// sync works one record as far as it is to go.
func (p *Publisher) sync(ctx context.Context, key recordKey) error {
	p.mu.Lock()
	queued := p.unfinished[key]
	p.mu.Unlock()
	if err := p.syncRecord(ctx, key); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unfinished[key] == queued { // else it was queued again meanwhile
		delete(p.unfinished, key)
	}
	return nil
}

// publishTimeout bounds one attempt at a record, so that what waits for one
// network does not keep the workers from the others.
const publishTimeout = 30 * time.Second

// syncRecord makes one attempt at a record.
func (p *Publisher) syncRecord(ctx context.Context, key recordKey) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	host, ok := p.node()
	if !ok {
		return fmt.Errorf("work sandbox %s: %w: the Node's UID is not known yet", key.containerID, attach.ErrTryAgain)
	}
	rec, err := p.readRecord(ctx, key)
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

// readRecord reads a record, as it is after a check of its DanmEps if that is due.
func (p *Publisher) readRecord(ctx context.Context, key recordKey) (*attach.Record, error) {
	_, suspect := p.recheckDue.LoadAndDelete(key)
	rec, err := p.records.Get(key.containerID, key.ifName)
	if err != nil || !suspect {
		return rec, err
	}
	if rec, err = p.markMissing(ctx, rec); err != nil {
		p.recheckDue.Store(key, nil)
	}
	return rec, err
}

// markMissing finds out which DanmEps of a record are gone, takes note in the journal,
// and tells the allocator that it has to cover their addresses again. It returns
// the record as it is then. It is for the record's one worker: a release waits for
// it, and takes back what it covered.
func (p *Publisher) markMissing(ctx context.Context, rec *attach.Record) (*attach.Record, error) {
	gone, err := p.missingDanmEps(ctx, rec)
	if err != nil || len(gone) == 0 {
		return rec, err
	}
	var noted []attach.Interface
	err = p.records.Update(rec.ContainerID, rec.IfName, func(r *attach.Record) error {
		noted = nil
		for i := range r.Interfaces {
			ifc := &r.Interfaces[i]
			if recordHasDanmEp(r, ifc) && gone[ifc.EndpointName] == ifc.EndpointUID {
				ifc.EndpointUID = ""
				noted = append(noted, *ifc)
			}
		}
		rec = r
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("journal that DanmEps of sandbox %s are gone: %w", rec.ContainerID, err)
	}
	for i := range noted {
		ifc := &noted[i]
		logr.FromContextOrDiscard(ctx).Info("A DanmEp is gone that this daemon did not remove; it is made again",
			"danmep", rec.PodNamespace+"/"+ifc.EndpointName, "network", ifc.Network.Ref.String())
		p.recovery.Missing(claims.KeyOf(&ifc.Network), ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr())
	}
	return rec, nil
}

// missingDanmEps reads the DanmEps that the record answers for, and returns the UIDs of
// those that do not exist by name.
func (p *Publisher) missingDanmEps(ctx context.Context, rec *attach.Record) (map[string]string, error) {
	gone := map[string]string{}
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
			gone[ifc.EndpointName] = ifc.EndpointUID
		}
	}
	return gone, nil
}

// publish creates the DanmEps that the record misses, journals their UIDs, and
// only then lets their addresses leave the node's entry.
func (p *Publisher) publish(ctx context.Context, rec *attach.Record, host NodeIdentity) error {
	created, err := p.createMissing(ctx, rec, host)
	if len(created) > 0 {
		journalled := p.records.Update(rec.ContainerID, rec.IfName, func(r *attach.Record) error {
			for i := range r.Interfaces {
				if uid := created[r.Interfaces[i].EndpointName]; uid != "" {
					r.Interfaces[i].EndpointUID = uid
				}
			}
			return nil
		})
		if journalled != nil {
			return errors.Join(err, fmt.Errorf("journal DanmEps of sandbox %s: %w", rec.ContainerID, journalled))
		}
	}
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if created[ifc.EndpointName] != "" {
			p.coverage.Published(claims.KeyOf(&ifc.Network), ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr())
		}
	}
	return err
}

// createMissing creates DanmEps side by side and returns the UIDs of the new
// ones by name, also when others failed.
func (p *Publisher) createMissing(ctx context.Context, rec *attach.Record, host NodeIdentity) (map[string]string, error) {
	uids := make([]string, len(rec.Interfaces))
	var group errgroup.Group
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if ifc.EndpointUID != "" {
			continue
		}
		group.Go(func() error {
			uid, err := p.danmEps.create(ctx, newDanmEp(rec, ifc, host))
			if namespaceGone(err) {
				// Nothing can be created there any more. The address stays in
				// the node's entry until DEL.
				logr.FromContextOrDiscard(ctx).Info("No DanmEp: the namespace is being deleted", "interface", ifc.Name)
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

// namespaceGone reports whether a create failed because its namespace is being
// deleted, or is deleted: it cannot succeed any more. A kind that is not found, as
// while its definition is installed anew, comes back.
func namespaceGone(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) &&
		status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// release gives back what the interfaces of a sandbox had, then forgets it.
func (p *Publisher) release(ctx context.Context, rec *attach.Record) error {
	var group errgroup.Group
	for i := range rec.Interfaces {
		group.Go(func() error { return p.releaseInterface(ctx, rec, &rec.Interfaces[i]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := p.records.Delete(rec.ContainerID, rec.IfName); err != nil {
		return fmt.Errorf("forget sandbox %s: %w", rec.ContainerID, err)
	}
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		p.coverage.Forget(claims.KeyOf(&ifc.Network), ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr())
	}
	return nil
}

// releaseInterface is repeated after a crash at any point. Only a DanmEp that is
// still there proves that its address is still ours to take back; without one,
// the node's entry decides (Free does nothing when it does not cover the address).
func (p *Publisher) releaseInterface(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	net := claims.KeyOf(&ifc.Network)
	key := client.ObjectKey{Namespace: rec.PodNamespace, Name: ifc.EndpointName}
	ep, err := p.danmEps.find(ctx, key, ifc.EndpointName, types.UID(ifc.EndpointUID))
	if err != nil {
		return err
	}
	if ep != nil {
		if err := p.coverage.Return(ctx, net, ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr()); err != nil {
			return fmt.Errorf("return addresses of %s to the node: %w", key, err)
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
