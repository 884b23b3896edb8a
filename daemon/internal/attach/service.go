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

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Config is what a Service works with. All fields but Backends and Delegate are
// required; a network whose type has no backend is refused.
type Config struct {
	// BootID is the kernel's boot_id: records of another one have no namespace.
	BootID string
	// KubeClient, Addresses, Journal, HostLinks, Namespaces and Publisher are the
	// rim; see the ports.
	KubeClient        KubeClient
	Addresses         Addresses
	Journal           Journal
	HostLinks         HostLinks
	NetworkNamespaces NetworkNamespaces
	Publisher         Publisher
	// Prober is asked for networks with ConflictProbe only.
	Prober Prober
	// Backends are our own, by network type (ipvlan, macvlan).
	Backends map[string]Backend
	// Delegate serves every network type that names another CNI plugin.
	Delegate Backend
}

// Service attaches Pods to networks and detaches them. Its methods may be
// called from any goroutine.
type Service struct {
	Config
	locks sandboxLocks
}

// New returns a Service. Resume is to be called once, at its start.
func New(c Config) *Service { return &Service{Config: c} }

// Add gives a sandbox the interfaces that its Pod asks for and returns the
// merged CNI result in version 1.1.0, the addresses of Request.IfName first.
// A repeated request gets the same result. On error nothing is left behind: no
// interface, address or record; should undoing fail too, the record stays for
// DEL. Errors answer to ErrInvalidRequest, ErrNotFound, ErrTryAgain or
// ErrDeleted where these fit, and the Pod gets an Event that says why.
func (s *Service) Add(ctx context.Context, req Request) (*types100.Result, error) {
	if err := req.validateAdd(); err != nil {
		return nil, err
	}
	ctx, leave, err := s.locks.lockForAdd(ctx, req.ContainerID)
	if err != nil {
		return nil, fmt.Errorf("wait for sandbox %s: %w", req.ContainerID, retryableDeadline(err))
	}
	defer leave()
	rec, err := s.priorRecord(ctx, &req)
	if err == nil && rec == nil {
		rec, err = s.attachPod(ctx, &req)
	}
	if err != nil {
		return nil, addError(ctx, err)
	}
	return mergeResults(rec)
}

// priorRecord deals with the record of an earlier ADD of this sandbox: one that came
// to its end answers for this one too, one that did not is undone.
func (s *Service) priorRecord(ctx context.Context, req *Request) (*Record, error) {
	rec, err := s.Journal.Get(req.ContainerID, req.IfName)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read record of sandbox %s: %w", req.ContainerID, err)
	case rec.State == Attaching:
		return nil, s.rollBack(ctx, rec)
	case rec.State != Attached, s.netnsGone(rec):
		return nil, errors.Join(
			fmt.Errorf("%w: what sandbox %s had is being given back", ErrTryAgain, req.ContainerID),
			s.detachSandbox(ctx, rec))
	// Not the UID: kubelet and the API server know a static Pod by different ones.
	case rec.Netns != req.Netns, rec.PodNamespace != req.PodNamespace, rec.PodName != req.PodName:
		return nil, fmt.Errorf("%w: sandbox %s is attached as Pod %s/%s (UID %s) in %s: DEL comes first",
			ErrInvalidRequest, req.ContainerID, rec.PodNamespace, rec.PodName, rec.PodUID, rec.Netns)
	}
	return rec, nil
}

// attachPod attaches a sandbox that has nothing yet.
func (s *Service) attachPod(ctx context.Context, req *Request) (*Record, error) {
	pod, err := s.KubeClient.Pod(ctx, req.PodNamespace, req.PodName, req.PodUID)
	if err != nil {
		return nil, fmt.Errorf("find Pod of sandbox %s: %w", req.ContainerID, err)
	}
	rec, err := s.attachSandbox(ctx, req, pod)
	// Nobody has to be told of an ADD that its caller gave up, or DEL ended.
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		s.KubeClient.ReportFailure(pod, err)
	}
	return rec, err
}

// attachSandbox plans, claims and plugs, each step journalled before it has effects.
func (s *Service) attachSandbox(ctx context.Context, req *Request, pod *corev1.Pod) (*Record, error) {
	rec, asked, err := s.plan(ctx, req, pod)
	if err != nil {
		return nil, err
	}
	if err := s.claimAddresses(ctx, pod, rec, asked); err != nil {
		return nil, withReason(ReasonAddress, err)
	}
	if err := s.Journal.Put(rec); err != nil {
		return nil, errors.Join(fmt.Errorf("journal sandbox %s: %w", req.ContainerID, err), s.discardRecord(rec))
	}
	if err := s.attachInterfaces(ctx, rec); err != nil {
		return nil, errors.Join(withReason(ReasonAttach, err), s.rollBack(ctx, rec))
	}
	rec.State = Attached
	if err := s.Journal.Put(rec); err != nil {
		return nil, errors.Join(fmt.Errorf("journal sandbox %s: %w", req.ContainerID, err), s.rollBack(ctx, rec))
	}
	s.Publisher.Publish(rec.Clone())
	return rec, nil
}

// plan says what the sandbox is to get; nothing has an effect yet.
func (s *Service) plan(ctx context.Context, req *Request, pod *corev1.Pod) (*Record, []requestedInterface, error) {
	asked, err := s.lookupNetworks(ctx, pod)
	if err != nil {
		return nil, nil, err
	}
	rec, err := newRecord(req, pod, asked)
	if err != nil {
		return nil, nil, err
	}
	rec.BootID = s.BootID
	if err := s.prepare(ctx, req, rec); err != nil {
		return nil, nil, err
	}
	return rec, asked, s.checkHostLinks(ctx, rec)
}

// lookupNetworks reads what the Pod asks for, and the networks of it.
func (s *Service) lookupNetworks(ctx context.Context, pod *corev1.Pod) ([]requestedInterface, error) {
	requests, err := network.ParseInterfaces(pod.Annotations)
	if err != nil {
		return nil, withReason(ReasonInterfaces, err)
	}
	if len(requests) == 0 {
		w, err := s.lookupDefaultNetwork(ctx, pod.Namespace)
		return []requestedInterface{w}, err
	}
	asked := make([]requestedInterface, len(requests))
	for i, r := range requests {
		n, err := s.KubeClient.Network(ctx, r.Ref(pod.Namespace))
		if err != nil {
			return nil, withReason(ReasonNetwork, fmt.Errorf("interface %d, network %s: %w", i, r.Ref(pod.Namespace), err))
		}
		asked[i] = requestedInterface{request: r, network: n}
	}
	return asked, nil
}

// lookupDefaultNetwork finds the network of a Pod that names none. One that exists and
// is invalid is an error: the next would be another network than its owner means.
func (s *Service) lookupDefaultNetwork(ctx context.Context, namespace string) (requestedInterface, error) {
	for _, ref := range network.DefaultRefs(namespace) {
		n, err := s.KubeClient.Network(ctx, ref)
		switch {
		case err == nil:
			return requestedInterface{request: network.DefaultRequest(n), network: n}, nil
		case !errors.Is(err, ErrNotFound):
			return requestedInterface{}, withReason(ReasonNetwork, fmt.Errorf("default network %s: %w", ref, err))
		}
	}
	return requestedInterface{}, withReasonf(ReasonNetwork,
		"default network: %w: the Pod has no annotation %s, and there is no DanmNet or TenantNetwork %q in namespace %q and no ClusterNetwork %q: make one of them",
		ErrNotFound, v1.InterfacesAnnotation, v1.DefaultNetworkName, namespace, v1.DefaultNetworkName)
}

// prepare lets backends complete their interfaces before anything is claimed.
func (s *Service) prepare(ctx context.Context, req *Request, rec *Record) error {
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		b, err := s.backendFor(&ifc.Network)
		if p, ok := b.(Preparer); ok && err == nil {
			err = p.Prepare(ctx, req, ifc)
		}
		if err != nil {
			return withReason(ReasonNetwork, fmt.Errorf("interface %d (%s), network %s: %w", i, ifc.Name, ifc.Network.Ref, err))
		}
	}
	return nil
}

// checkHostLinks reports what keeps an interface from its parent link, before anything is
// claimed: a Pod that can never start would take other addresses with each try, as those
// that it gives back rest for a while.
func (s *Service) checkHostLinks(ctx context.Context, rec *Record) error {
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if !ifc.needsHostLink() {
			continue
		}
		if err := s.HostLinks.Check(ctx, &ifc.Network); err != nil {
			return withReason(ReasonAttach, fmt.Errorf("attach %s to network %s: %w", ifc.Name, ifc.Network.Ref, err))
		}
	}
	return nil
}

// Del takes the sandbox's interfaces away, from the journal alone. It ends an
// ADD of the same sandbox that is under way. A sandbox that is not known is no
// error. Addresses and DanmEps are given back in the background.
func (s *Service) Del(ctx context.Context, req Request) error {
	if err := req.validateKey(); err != nil {
		return err
	}
	leave, err := s.locks.lockForDel(ctx, req.ContainerID)
	if err != nil {
		return fmt.Errorf("wait for sandbox %s: %w", req.ContainerID, retryableDeadline(err))
	}
	defer leave()
	rec, err := s.Journal.Get(req.ContainerID, req.IfName)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("read record of sandbox %s: %w", req.ContainerID, err)
	}
	return s.detachSandbox(ctx, rec)
}

// detachSandbox brings a record to its end from wherever it is.
func (s *Service) detachSandbox(ctx context.Context, rec *Record) error {
	switch rec.State {
	case Attaching:
		return s.rollBack(ctx, rec)
	case Released:
		s.Publisher.Release(rec)
		return nil
	}
	if err := s.detachInterfaces(ctx, rec); err != nil {
		// Only now: DEL usually succeeds, and this would be a write more.
		rec.State = Detaching
		return retryableDeadline(errors.Join(err, s.Journal.Put(rec)))
	}
	rec.State = Released
	if err := s.Journal.Put(rec); err != nil {
		return fmt.Errorf("journal the end of sandbox %s: %w", rec.ContainerID, err)
	}
	s.Publisher.Release(rec)
	return nil
}

// rollBackTimeout bounds a roll-back: the caller's context may have ended, and a
// delegate may hang.
const rollBackTimeout = 30 * time.Second

// rollBack takes back an ADD that did not come to its end, the last step first.
// The caller's context may have ended. When a step fails the record stays, and
// with it the addresses: DEL tries again.
func (s *Service) rollBack(ctx context.Context, rec *Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollBackTimeout)
	defer cancel()
	if err := s.detachInterfaces(ctx, rec); err != nil {
		return fmt.Errorf("roll back sandbox %s: %w", rec.ContainerID, err)
	}
	return s.discardRecord(rec)
}

// discardRecord drops the record of a sandbox without interfaces, then its addresses.
// The other way round an address could be another Pod's while a record says
// that it is this one's, and DEL would give it back a second time.
func (s *Service) discardRecord(rec *Record) error {
	if err := s.Journal.Delete(rec.ContainerID, rec.IfName); err != nil && !s.recordMissing(rec) {
		return fmt.Errorf("forget sandbox %s: %w", rec.ContainerID, err)
	}
	for i := range slices.Backward(rec.Interfaces) {
		s.discardAddresses(&rec.Interfaces[i])
	}
	return nil
}

// recordMissing reports whether a record is not there, whatever its deletion said: then
// no DEL will find it, and nobody but us can give its addresses back.
func (s *Service) recordMissing(rec *Record) bool {
	_, err := s.Journal.Get(rec.ContainerID, rec.IfName)
	return errors.Is(err, ErrNotFound)
}

// resumeWorkers bound the records in work at a time: after a reboot delegates
// run once for each.
const resumeWorkers = 8

// Resume takes up the journal's records when the daemon starts, beside the first
// requests and without the API server: what a reboot or a vanished namespace left
// is cleaned up, what was not published or given back is handed to the Publisher. An ADD that the daemon's end cut off is left to the
// runtime, which asks again or sends DEL. The error names the records that
// could not be taken up; the others were.
func (s *Service) Resume(ctx context.Context) error {
	recs, err := s.Journal.List()
	failed := make([]error, len(recs)+1)
	failed[len(recs)] = err
	var group errgroup.Group
	group.SetLimit(resumeWorkers)
	for i, rec := range recs {
		group.Go(func() error {
			failed[i] = s.resumeRecord(ctx, rec)
			return nil
		})
	}
	_ = group.Wait()
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("resume from the journal: %w", err)
	}
	return nil
}

// resumeRecord takes up one record, as it is when its turn comes: a DEL may have been
// faster, and its addresses may be another Pod's.
func (s *Service) resumeRecord(ctx context.Context, listed *Record) error {
	leave, err := s.locks.lock(ctx, listed.ContainerID)
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", listed.ContainerID, err)
	}
	defer leave()
	rec, err := s.Journal.Get(listed.ContainerID, listed.IfName)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("sandbox %s: %w", listed.ContainerID, err)
	case rec.State == Released:
		s.Publisher.Release(rec)
	case rec.State == Detaching, rec.BootID != s.BootID, rec.State == Attaching && s.netnsGone(rec):
		return s.detachSandbox(ctx, rec)
	case rec.State == Attached && slices.ContainsFunc(rec.Interfaces, unpublished):
		s.Publisher.Publish(rec)
	}
	return nil
}

// unpublished reports whether the API server is not known to have the DanmEp.
func unpublished(ifc Interface) bool { return ifc.EndpointUID == "" }
