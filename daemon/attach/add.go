// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"
)

// Add gives a sandbox the interfaces that its Pod asks for and returns the
// merged CNI result in version 1.1.0, the addresses of Request.IfName first.
// A repeated request gets the same result. On error nothing is left behind: no
// interface, address or record; should undoing fail too, the record stays for
// DEL. Errors answer to ErrInvalidRequest, ErrNotFound, ErrTryAgain or
// ErrDeleted where these fit, and the Pod gets an Event that says why.
func (s *Service) Add(ctx context.Context, req Request) (*types100.Result, error) {
	if err := req.checkAdd(); err != nil {
		return nil, err
	}
	ctx, leave, err := s.sandboxes.enterAdd(ctx, req.ContainerID)
	if err != nil {
		return nil, fmt.Errorf("wait for sandbox %s: %w", req.ContainerID, patience(err))
	}
	defer leave()
	rec, err := s.former(ctx, &req)
	if err == nil && rec == nil {
		rec, err = s.attachPod(ctx, &req)
	}
	if err != nil {
		return nil, verdict(ctx, err)
	}
	return merge(rec)
}

// former deals with the record of an earlier ADD of this sandbox: one that came
// to its end answers for this one too, one that did not is undone.
func (s *Service) former(ctx context.Context, req *Request) (*Record, error) {
	rec, err := s.Journal.Get(req.ContainerID, req.IfName)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read record of sandbox %s: %w", req.ContainerID, err)
	case rec.State == Attaching:
		return nil, s.undo(ctx, rec)
	case rec.State != Attached, s.namespaceGone(rec):
		return nil, errors.Join(
			fmt.Errorf("%w: what sandbox %s had is being given back", ErrTryAgain, req.ContainerID),
			s.detach(ctx, rec))
	// Not the UID: kubelet and the API server know a static Pod by different ones.
	case rec.Netns != req.Netns, rec.PodNamespace != req.PodNamespace, rec.PodName != req.PodName:
		return nil, fmt.Errorf("%w: sandbox %s is attached as Pod %s/%s (UID %s) in %s: DEL comes first",
			ErrInvalidRequest, req.ContainerID, rec.PodNamespace, rec.PodName, rec.PodUID, rec.Netns)
	}
	return rec, nil
}

// attachPod attaches a sandbox that has nothing yet.
func (s *Service) attachPod(ctx context.Context, req *Request) (*Record, error) {
	pod, err := s.Cluster.Pod(ctx, req.PodNamespace, req.PodName, req.PodUID)
	if err != nil {
		return nil, fmt.Errorf("find Pod of sandbox %s: %w", req.ContainerID, err)
	}
	rec, err := s.attach(ctx, req, pod)
	// Nobody has to be told of an ADD that its caller gave up, or DEL ended.
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		s.Cluster.Refuse(pod, err)
	}
	return rec, err
}

// attach plans, claims and plugs, each step journalled before it has effects.
func (s *Service) attach(ctx context.Context, req *Request, pod *corev1.Pod) (*Record, error) {
	rec, asked, err := s.plan(ctx, req, pod)
	if err != nil {
		return nil, err
	}
	if err := s.claim(ctx, pod, rec, asked); err != nil {
		return nil, refuse(ReasonAddress, err)
	}
	if err := s.Journal.Put(rec); err != nil {
		return nil, errors.Join(fmt.Errorf("journal sandbox %s: %w", req.ContainerID, err), s.forget(rec))
	}
	if err := s.plug(ctx, rec); err != nil {
		return nil, errors.Join(refuse(ReasonAttach, err), s.undo(ctx, rec))
	}
	rec.State = Attached
	if err := s.Journal.Put(rec); err != nil {
		return nil, errors.Join(fmt.Errorf("journal sandbox %s: %w", req.ContainerID, err), s.undo(ctx, rec))
	}
	s.Publisher.Publish(rec.Clone())
	return rec, nil
}

// plan says what the sandbox is to get; nothing has an effect yet.
func (s *Service) plan(ctx context.Context, req *Request, pod *corev1.Pod) (*Record, []want, error) {
	asked, err := s.lookup(ctx, pod)
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
	return rec, asked, s.check(ctx, rec)
}
