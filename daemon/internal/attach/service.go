// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Config has the dependencies of a Service. All are required, except that a network whose type has
// no backend is rejected, that Prober is used for networks with ConflictProbe only and Devices for
// networks with a device pool only, that without
// AddressOwners an error does not name the Pod that has an address, and without KnownNetwork no network
// of another kind.
type Config struct {
	// BootID is the kernel's boot ID. The network namespaces of records with another one are gone.
	BootID string

	KubeClient        KubeClient
	Addresses         Addresses
	Journal           Journal
	HostLinks         HostLinks
	NetworkNamespaces NetworkNamespaces
	Publisher         Publisher
	Prober            Prober
	AddressOwners     AddressOwners
	Devices           Devices
	// KnownNetwork returns a network that this node knows, without a request to the API server, and nil
	// for another one.
	KnownNetwork func(network.Ref) *network.Network
	// Backends has Patchbay's own backends by network type (ipvlan, macvlan, sriov).
	Backends map[string]Backend
	// Delegate is the backend of network types that name another CNI plugin.
	Delegate Backend
	// Unknown detaches sandboxes that are not in the journal; nil if there are none from before the installation.
	Unknown UnknownSandboxes
}

// Service attaches Pods to networks and detaches them. Its methods are safe for concurrent use.
type Service struct {
	bootID     string
	kube       KubeClient
	journal    Journal
	publisher  Publisher
	addresses  addressClaimer
	interfaces interfaceAttacher
	devices    Devices
	unknown    UnknownSandboxes
	owners     deviceOwners
	locks      sandboxLocks

	knownNetwork func(network.Ref) *network.Network // or nil
}

// New returns a Service. The caller must call Resume once at the start.
func New(c Config) *Service {
	return &Service{
		bootID: c.BootID, kube: c.KubeClient, knownNetwork: c.KnownNetwork, journal: c.Journal, publisher: c.Publisher,
		addresses: addressClaimer{addresses: c.Addresses, hostLinks: c.HostLinks, prober: c.Prober, kube: c.KubeClient, owners: c.AddressOwners},
		interfaces: interfaceAttacher{
			bootID: c.BootID, hostLinks: c.HostLinks, netns: c.NetworkNamespaces, backends: c.Backends, delegate: c.Delegate,
		},
		devices: c.Devices, unknown: c.Unknown, owners: deviceOwners{journal: c.Journal},
	}
}

// Add attaches the interfaces that the sandbox's Pod requests. It returns the merged CNI result in
// version 1.1.0, with the addresses of Request.IfName first. A repeated request gets the same
// result. On error Add rolls back all interfaces, addresses and the record; if the roll-back fails
// as well, the record stays for DEL. The error wraps ErrInvalidRequest, ErrNotFound, ErrTryAgain or
// ErrDeleted where these apply. Add records a PodError as an Event on the Pod.
func (s *Service) Add(ctx context.Context, req Request) (*types100.Result, error) {
	if err := req.validateAdd(); err != nil {
		return nil, err
	}
	var rec *Record
	err := s.locks.runAdd(ctx, req.ContainerID, func(ctx context.Context) (err error) {
		if rec, err = s.priorRecord(ctx, &req); err == nil && rec == nil {
			rec, err = s.attachPod(ctx, &req)
		}
		if err != nil {
			return addError(ctx, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return mergeResults(rec)
}

// addError returns the error of ADD. It adds ErrDeleted if a DEL canceled the ADD.
func addError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrDeleted) && !errors.Is(err, ErrDeleted) {
		return fmt.Errorf("%w: %w", ErrDeleted, err)
	}
	return retryableDeadline(err)
}

// retryableDeadline adds ErrTryAgain to the error of a deadline.
func retryableDeadline(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrTryAgain) {
		return fmt.Errorf("%w: %w", ErrTryAgain, err)
	}
	return err
}

// priorRecord returns the record of an earlier ADD of this sandbox if that ADD succeeded, and nil if
// there is no record. It rolls back an ADD that did not complete.
func (s *Service) priorRecord(ctx context.Context, req *Request) (*Record, error) {
	rec, err := s.journal.Get(req.ContainerID, req.IfName)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read record of sandbox %s: %w", req.ContainerID, err)
	case rec.State == Attaching:
		return nil, s.rollBack(ctx, rec)
	case rec.State != Attached, s.interfaces.netnsGone(rec):
		return nil, errors.Join(
			fmt.Errorf("%w: sandbox %s is being detached", ErrTryAgain, req.ContainerID),
			s.detachSandbox(ctx, rec))
	// Not the UID: kubelet and the API server have different UIDs for a static Pod.
	case rec.Netns != req.Netns, rec.PodNamespace != req.PodNamespace, rec.PodName != req.PodName:
		return nil, fmt.Errorf("%w: sandbox %s is attached as Pod %s/%s (UID %s) in %s: DEL must come first",
			ErrInvalidRequest, req.ContainerID, rec.PodNamespace, rec.PodName, rec.PodUID, rec.Netns)
	}
	return rec, nil
}

// attachPod attaches a sandbox without a record, and reports a failure on its Pod.
func (s *Service) attachPod(ctx context.Context, req *Request) (*Record, error) {
	pod, err := s.kube.Pod(ctx, req.PodNamespace, req.PodName, req.PodUID)
	if err != nil {
		return nil, fmt.Errorf("find Pod of sandbox %s: %w", req.ContainerID, err)
	}
	rec, err := s.attachSandbox(ctx, req, pod)
	// An ADD that was canceled by its caller or by a DEL is no failure of the Pod.
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		err = &PodError{Reason: s.kube.ReportFailure(pod, err), Err: err}
	}
	return rec, err
}

// attachSandbox plans the record, claims devices and addresses, and attaches interfaces. It journals the
// record before it attaches the first interface.
func (s *Service) attachSandbox(ctx context.Context, req *Request, pod *corev1.Pod) (*Record, error) {
	rec, requested, err := s.plan(ctx, req, pod)
	if err != nil {
		return nil, err
	}
	if err := s.owners.claim(rec); err != nil {
		return nil, err
	}
	if err := s.claim(ctx, req, pod, rec, requested); err != nil {
		s.owners.release(rec)
		return nil, err
	}
	if err := s.journal.Put(rec); err != nil {
		return nil, errors.Join(fmt.Errorf("journal sandbox %s: %w", req.ContainerID, err), s.discardRecord(rec))
	}
	if err := s.interfaces.attach(ctx, rec); err != nil {
		return nil, errors.Join(err, s.rollBack(ctx, rec))
	}
	rec.State = Attached
	if err := s.journal.Put(rec); err != nil {
		return nil, errors.Join(fmt.Errorf("journal sandbox %s: %w", req.ContainerID, err), s.rollBack(ctx, rec))
	}
	if !rec.OnNodeConfiguration() {
		s.publisher.Publish(rec.Clone())
	}
	return rec, nil
}

// plan returns the record of a sandbox with its devices, and the interfaces that its Pod requests. It has
// no side effect.
func (s *Service) plan(ctx context.Context, req *Request, pod *corev1.Pod) (*Record, []requestedInterface, error) {
	requested, err := lookupNetworks(ctx, s.kube, pod, s.knownNetwork)
	if err != nil {
		return nil, nil, err
	}
	rec, err := newRecord(req, pod, requested)
	if err != nil {
		return nil, nil, err
	}
	rec.BootID = s.bootID
	return rec, requested, assignDevices(ctx, s.kube, s.devices, pod, rec)
}

// claim completes the record, whose devices the sandbox has, and claims its addresses. On error nothing
// is claimed.
func (s *Service) claim(ctx context.Context, req *Request, pod *corev1.Pod, rec *Record, requested []requestedInterface) error {
	if err := s.interfaces.prepare(ctx, req, rec); err != nil {
		return err
	}
	if err := s.interfaces.checkHostLinks(ctx, rec); err != nil {
		return err
	}
	return s.addresses.claim(ctx, pod, rec, requested)
}

// Del detaches the sandbox's interfaces. It uses the journal alone, and cancels an ADD of the same
// sandbox. A sandbox that is not in the journal may be from before the installation; if it is not, it is no
// error. The Publisher releases addresses and DanmEps in the
// background.
func (s *Service) Del(ctx context.Context, req Request) error {
	if err := req.validateKey(); err != nil {
		return err
	}
	return s.locks.runDel(ctx, req.ContainerID, func() error {
		rec, err := s.journal.Get(req.ContainerID, req.IfName)
		switch {
		case errors.Is(err, ErrNotFound):
			return s.detachUnknown(ctx, &req)
		case err != nil:
			return fmt.Errorf("read record of sandbox %s: %w", req.ContainerID, err)
		}
		return s.detachSandbox(ctx, rec)
	})
}

// detachUnknown detaches a sandbox that is not in the journal.
func (s *Service) detachUnknown(ctx context.Context, req *Request) error {
	if s.unknown == nil {
		return nil
	}
	if err := s.unknown.DetachUnknown(ctx, req); err != nil {
		return retryableDeadline(fmt.Errorf("detach sandbox %s, which Patchbay has not attached: %w", req.ContainerID, err))
	}
	return nil
}

// detachSandbox detaches a sandbox in any state.
func (s *Service) detachSandbox(ctx context.Context, rec *Record) error {
	switch rec.State {
	case Attaching:
		return s.rollBack(ctx, rec)
	case Released:
		s.publisher.Release(rec)
		return nil
	}
	if err := s.interfaces.detach(ctx, rec); err != nil {
		// Only after a failure: a DEL that succeeds saves this write.
		rec.State = Detaching
		return retryableDeadline(errors.Join(err, s.journal.Put(rec)))
	}
	if rec.OnNodeConfiguration() { // there is nothing else to release
		return s.discardRecord(rec)
	}
	rec.State = Released
	if err := s.journal.Put(rec); err != nil {
		return fmt.Errorf("journal the release of sandbox %s: %w", rec.ContainerID, err)
	}
	s.owners.release(rec)
	s.publisher.Release(rec)
	return nil
}

// AttachedDevices returns the IDs of the devices that sandboxes have, sorted. It returns none if the journal
// cannot be read.
func (s *Service) AttachedDevices() []string { return s.owners.devices() }

// rollBackTimeout bounds a roll-back, in which a delegate may hang.
const rollBackTimeout = 30 * time.Second

// rollBack rolls back an ADD that did not complete, in reverse order. It also works when ctx has
// ended. When a step fails, the record and the addresses stay for DEL.
func (s *Service) rollBack(ctx context.Context, rec *Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollBackTimeout)
	defer cancel()
	if err := s.interfaces.detach(ctx, rec); err != nil {
		return fmt.Errorf("roll back sandbox %s: %w", rec.ContainerID, err)
	}
	return s.discardRecord(rec)
}

// discardRecord deletes the record of a sandbox without interfaces, and then gives back its devices
// and addresses. In the opposite order, another Pod could get an address that the record still has, and
// a DEL would free it a second time.
func (s *Service) discardRecord(rec *Record) error {
	if err := s.journal.Delete(rec.ContainerID, rec.IfName); err != nil && !s.recordMissing(rec) {
		return fmt.Errorf("delete record of sandbox %s: %w", rec.ContainerID, err)
	}
	s.owners.release(rec)
	for i := range slices.Backward(rec.Interfaces) {
		if ifc := &rec.Interfaces[i]; !ifc.Network.IsNodeConfiguration() {
			s.addresses.discard(ifc)
		}
	}
	return nil
}

// recordMissing reports whether a record does not exist, although its deletion failed. No DEL will
// then give its addresses back.
func (s *Service) recordMissing(rec *Record) bool {
	_, err := s.journal.Get(rec.ContainerID, rec.IfName)
	return errors.Is(err, ErrNotFound)
}

// resumeWorkers is how many records Resume processes at a time. After a reboot it runs the delegates
// of each.
const resumeWorkers = 8

// Resume processes the journal's records when the daemon starts, while it already handles requests
// and before the API server answers. It detaches sandboxes whose network namespace is gone, such as
// after a reboot, and passes unpublished and unreleased records to the Publisher. It leaves an
// interrupted ADD to the runtime, which repeats it or sends DEL. The error names the records that
// failed.
func (s *Service) Resume(ctx context.Context) error {
	recs, err := s.journal.List()
	failed := make([]error, len(recs)+1)
	failed[len(recs)] = err
	var group errgroup.Group
	group.SetLimit(resumeWorkers)
	for i, rec := range recs {
		group.Go(func() error {
			if err := s.resumeSandbox(ctx, rec); err != nil {
				failed[i] = fmt.Errorf("sandbox %s: %w", rec.ContainerID, err)
			}
			return nil
		})
	}
	_ = group.Wait()
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("resume from the journal: %w", err)
	}
	return nil
}

// resumeSandbox resumes one sandbox. It reads the record again, because a DEL may have released the
// sandbox since the list, and its addresses may belong to another Pod.
func (s *Service) resumeSandbox(ctx context.Context, listed *Record) error {
	return s.locks.run(ctx, listed.ContainerID, func() error {
		rec, err := s.journal.Get(listed.ContainerID, listed.IfName)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil
		case err != nil:
			return err
		case rec.State == Released:
			s.publisher.Release(rec)
		case rec.State == Detaching, rec.BootID != s.bootID, rec.State == Attaching && s.interfaces.netnsGone(rec):
			return s.detachSandbox(ctx, rec)
		case rec.State == Attached && !rec.OnNodeConfiguration() && slices.ContainsFunc(rec.Interfaces, unpublished):
			s.publisher.Publish(rec)
		}
		return nil
	})
}

// unpublished reports whether the DanmEp of an interface is not known to exist.
func unpublished(ifc Interface) bool { return ifc.EndpointUID == "" }
