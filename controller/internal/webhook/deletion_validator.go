// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

const (
	// returnTimeout is how long a deletion waits for nodes to detach Pods and to return addresses, less
	// than maxWebhookTimeout. The cooldown of an address is longer. But the reclaim request changes the
	// object, so the API server calls admission again after a rejection (it takes the object that
	// it had read for outdated), and the deletion waits a second time.
	returnTimeout = 8 * time.Second
	// answerMargin is the part of the API server's timeout that remains for the answer.
	answerMargin = time.Second
	// returnPollInterval is how often a waiting deletion reads its network.
	returnPollInterval = 500 * time.Millisecond
	// maxWaitingDeletions bounds the deletions that wait at the same time. Each occupies a request of
	// the API server meanwhile, so a tenant must not be able to make many wait.
	maxWaitingDeletions = 8
)

// deletionValidator validates deletions of networks.
type deletionValidator struct {
	reader   client.Reader
	reclaims *reclaimRequester
	waiting  chan struct{} // one element for each deletion that waits
}

func newDeletionValidator(reader client.Reader, reclaims *reclaimRequester) *deletionValidator {
	return &deletionValidator{reader: reader, reclaims: reclaims, waiting: make(chan struct{}, maxWaitingDeletions)}
}

// deletionCheck is whether a network can be deleted at a moment.
type deletionCheck struct {
	rejection error // nil if it can
	// temporary reports that nodes end the use by themselves: they detach Pods that were deleted, and
	// return pre-allocated addresses.
	temporary bool
	pods      bool // the use is by Pods
}

// validate checks that no Pod is attached. Pre-allocated addresses do not forbid the deletion,
// because the finalizer keeps the object until nodes have released them. They do while the
// finalizer is so new that the API server may not have seen it: then the nodes are asked to release
// them, and the deletion waits for that. It also waits for Pods that were deleted, because a node
// detaches a Pod a moment after the API server has removed it.
func (v *deletionValidator) validate(ctx context.Context, r admission.Request) error {
	old, err := decodeNetwork(r, r.OldObject.Raw)
	if err != nil || old == nil || old.GetDeletionTimestamp() != nil {
		return err
	}
	ref := kube.NetworkRefOf(r.Kind.Kind, old)
	pods := &podLookup{reader: v.reader}
	first, err := v.check(ctx, ref, old, pods)
	if err != nil {
		return err
	}
	if !first.temporary || isDryRun(r) {
		return first.rejection
	}
	if !first.pods {
		v.reclaims.enqueue(old)
	}
	select {
	case v.waiting <- struct{}{}:
		defer func() { <-v.waiting }()
		return v.await(ctx, ref, old, first, pods)
	default:
		return first.rejection
	}
}

// check checks that no Pod is attached to a network, and no address pre-allocated if that matters.
func (v *deletionValidator) check(ctx context.Context, ref network.Ref, obj client.Object, pods *podLookup) (deletionCheck, error) {
	eps, err := attachedEndpoints(ctx, v.reader, ref, string(obj.GetUID()))
	if err != nil {
		return deletionCheck{}, err
	}
	if len(eps) == 0 {
		err := checkPreallocated(ref, obj)
		return deletionCheck{rejection: err, temporary: err != nil}, nil
	}
	attached := pods.firstAttached(ctx, eps)
	uses := podUses(eps)
	if attached == nil {
		for i := range uses {
			uses[i].PodDeleted = true
		}
	} else {
		uses[0] = describedUse(ctx, v.reader, attached) // the one that the message names
	}
	return deletionCheck{rejection: network.CheckDelete(ref, uses), temporary: attached == nil, pods: true}, nil
}

// checkPreallocated checks that a network whose finalizer is new has no pre-allocated addresses.
func checkPreallocated(ref network.Ref, obj client.Object) error {
	if !finalizerRecentlyAdded(obj, time.Now()) {
		return nil
	}
	return network.CheckDelete(ref, preallocatedUses(kube.NetworkStatusOf(obj)))
}

// maxRequestDuration is longer than the API server works on a request (a minute) plus the
// difference between its clock and ours.
const maxRequestDuration = 90 * time.Second

// finalizerRecentlyAdded reports whether the finalizer may be newer than the start of the DELETE
// request. The API server looks for finalizers when a DELETE begins: it ignores one that is set
// later, and removes the object when admission allows it. Admission sees the object as it is at
// that moment, so only this check sees a Pod that attached meanwhile. The managed fields contain
// when the finalizer was set; without them it may have been now.
func finalizerRecentlyAdded(obj client.Object, now time.Time) bool {
	key := []byte(strconv.Quote("v:" + strconv.Quote(v1.InUseFinalizer)))
	for _, m := range obj.GetManagedFields() {
		if m.FieldsV1 != nil && bytes.Contains(m.FieldsV1.GetRawBytes(), key) {
			return m.Time == nil || now.Sub(m.Time.Time) < maxRequestDuration
		}
	}
	return true
}

// await repeats the check on the present object until it passes. It returns the last rejection when
// the time is over.
//
// It decides nothing about a network that has changed since the request's object was read, that is
// gone, or that was created again: if the deletion is allowed, the API server finds that out, and
// calls admission again with the present object.
func (v *deletionValidator) await(ctx context.Context, ref network.Ref, old client.Object, last deletionCheck, pods *podLookup) error {
	ctx, cancel := withReturnTimeout(ctx)
	defer cancel()
	for seen := old.GetResourceVersion(); sleep(ctx, returnPollInterval); {
		now, err := v.read(ctx, ref)
		switch {
		case ctx.Err() != nil:
			return last.rejection
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case now.GetUID() != old.GetUID(), now.GetDeletionTimestamp() != nil:
			return nil
		}
		unchanged := now.GetResourceVersion() == seen // a Pod that attaches changes the network
		if !last.pods && unchanged && checkPreallocated(ref, now) != nil {
			continue
		}
		next, err := v.check(ctx, ref, now, pods)
		switch {
		case ctx.Err() != nil:
			return last.rejection
		case err != nil:
			return err
		case !next.temporary:
			return next.rejection
		case !next.pods:
			v.reclaims.enqueue(now)
		}
		last, seen = next, now.GetResourceVersion()
	}
	return last.rejection
}

// withReturnTimeout limits a context to the time that a deletion may wait.
func withReturnTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	end := time.Now().Add(returnTimeout)
	if limit, ok := ctx.Deadline(); ok && limit.Add(-answerMargin).Before(end) {
		end = limit.Add(-answerMargin)
	}
	return context.WithDeadline(ctx, end)
}

// read reads a network from the API server.
func (v *deletionValidator) read(ctx context.Context, ref network.Ref) (client.Object, error) {
	obj, err := kube.NewNetwork(ref.Kind)
	if err != nil {
		return nil, err
	}
	if err := v.reader.Get(ctx, kube.ObjectKey(ref), obj); err != nil {
		return nil, fmt.Errorf("get %s: %w", ref, err)
	}
	return obj, nil
}
