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
	// maxPodLookups bounds the Pods that one check of a waiting deletion looks up.
	maxPodLookups = 16
)

// deletionValidator validates deletions of networks.
type deletionValidator struct {
	reader   client.Reader
	reclaims *reclaimRequester
	slots    waitSlots
}

func newDeletionValidator(reader client.Reader, reclaims *reclaimRequester) *deletionValidator {
	return &deletionValidator{reader: reader, reclaims: reclaims}
}

// deletionCheck is the result of one check.
type deletionCheck struct {
	rejection error // nil if the network can be deleted
	// temporary reports that nodes end the use by themselves: they detach Pods that are gone, and
	// return pre-allocated addresses.
	temporary bool
	awaited   *v1.DanmEp // of a Pod that a node has to detach, nil if only addresses are in use
	complete  bool       // all Pods have been looked up
}

// validate checks that no Pod is attached. Pre-allocated addresses do not forbid the deletion,
// because the finalizer keeps the object until nodes have released them. They do while the
// finalizer is so new that the API server may not have seen it: then the nodes are asked to release
// them, and the deletion waits for that. It also waits for Pods that are gone or end soon, because a
// node detaches a Pod a moment after the API server has removed it.
func (v *deletionValidator) validate(ctx context.Context, r admission.Request) error {
	old, err := decodeNetwork(r, r.OldObject.Raw)
	if err != nil || old == nil || old.GetDeletionTimestamp() != nil {
		return err
	}
	ctx, cancel := withReturnTimeout(ctx)
	defer cancel()
	ref, pods := kube.NetworkRefOf(r.Kind.Kind, old), &podLookup{reader: v.reader}
	first, err := v.check(ctx, ref, old, pods, 1)
	if err != nil {
		return err
	}
	if !first.temporary || isDryRun(r) {
		return first.rejection
	}
	v.requestReturn(old, first)
	release, ok := v.slots.take(old)
	if !ok {
		return first.rejection
	}
	defer release()
	return v.waitUntilUnused(ctx, ref, old, first, pods)
}

// check checks that no Pod is attached to a network, and no address pre-allocated if that matters. It looks
// up a number of Pods at most.
func (v *deletionValidator) check(ctx context.Context, ref network.Ref, obj client.Object, pods *podLookup, lookups int) (deletionCheck, error) {
	eps, err := attachedEndpoints(ctx, v.reader, ref, string(obj.GetUID()))
	if err != nil {
		return deletionCheck{}, err
	}
	if len(eps) == 0 {
		err := checkPreallocated(ref, obj)
		return deletionCheck{rejection: err, temporary: err != nil, complete: true}, nil
	}
	found := pods.decisive(ctx, eps, lookups)
	eps[0], eps[found.index] = eps[found.index], eps[0] // the message names the first one
	uses := podUses(eps)
	uses[0] = describedUse(ctx, v.reader, eps[0])
	uses[0].PodState = found.state
	return deletionCheck{rejection: network.CheckDelete(ref, uses), temporary: found.soon, awaited: eps[0], complete: found.complete}, nil
}

// requestReturn asks the nodes for their addresses of a network on which no Pod is left.
func (v *deletionValidator) requestReturn(obj client.Object, c deletionCheck) {
	if c.awaited == nil {
		v.reclaims.enqueue(obj)
	}
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

// waitUntilUnused repeats the check on the present object until it passes. It returns the last rejection when
// the time is over.
//
// It decides nothing about a network that has changed since the request's object was read, that is
// gone, or that was created again: if the deletion is allowed, the API server finds that out, and
// calls admission again with the present object.
func (v *deletionValidator) waitUntilUnused(ctx context.Context, ref network.Ref, old client.Object, last deletionCheck, pods *podLookup) error {
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
		if unchanged && last.complete && v.stillUsed(ctx, ref, now, last) {
			continue
		}
		next, err := v.check(ctx, ref, now, pods, maxPodLookups)
		switch {
		case ctx.Err() != nil:
			return last.rejection
		case err != nil:
			return err
		case !next.temporary:
			return next.rejection
		}
		v.requestReturn(now, next)
		last, seen = next, now.GetResourceVersion()
	}
	return last.rejection
}

// stillUsed reports whether what the last check found still is so: a list of all DanmEps would cost more.
func (v *deletionValidator) stillUsed(ctx context.Context, ref network.Ref, now client.Object, last deletionCheck) bool {
	if last.awaited == nil {
		return checkPreallocated(ref, now) != nil
	}
	ep := &v1.DanmEp{}
	err := v.reader.Get(ctx, client.ObjectKeyFromObject(last.awaited), ep)
	return err == nil && ep.UID == last.awaited.UID
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
