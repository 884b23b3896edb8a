// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Times of the heartbeat: the hub takes an agent for unreachable when its Lease has expired.
const (
	heartbeatInterval = 10 * time.Second
	leaseSeconds      = 40
)

// heartbeat renews the agent's Lease at the hub.
type heartbeat struct {
	client              client.Client
	namespace, identity string
	recordCount         func() int // number of AppliedWorks
	// reportDelay returns the age of the oldest change that the agent has not reported; false when it is not known.
	reportDelay func(context.Context) (time.Duration, bool)
	lease       *coordinationv1.Lease
}

// renew renews the Lease, usually with one request. The hub dates what it knows of the cluster by it: everything
// that changed before renewTime, less the delay, must have been reported.
func (h *heartbeat) renew(ctx context.Context) error {
	if h.lease == nil {
		lease := &coordinationv1.Lease{}
		err := h.client.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: v1alpha1.HeartbeatLease}, lease)
		if apierrors.IsNotFound(err) {
			return h.createLease(ctx)
		}
		if err != nil {
			return fmt.Errorf("get heartbeat: %w", err)
		}
		h.lease = lease
	}
	h.setLeaseSpec(ctx, h.lease)
	if err := h.client.Update(ctx, h.lease); err != nil {
		h.lease = nil
		return fmt.Errorf("renew heartbeat: %w", err)
	}
	return nil
}

func (h *heartbeat) createLease(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: v1alpha1.HeartbeatLease}}
	h.setLeaseSpec(ctx, lease)
	if err := h.client.Create(ctx, lease); err != nil {
		return fmt.Errorf("create heartbeat: %w", err)
	}
	h.lease = lease
	return nil
}

func (h *heartbeat) setLeaseSpec(ctx context.Context, lease *coordinationv1.Lease) {
	delay := ""
	now, seconds := metav1.NowMicro(), int32(leaseSeconds) // before the delay is known: a change in between counts as unreported
	if d, ok := h.reportDelay(ctx); ok {
		delay = d.Round(time.Millisecond).String()
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != h.identity {
		lease.Spec.HolderIdentity, lease.Spec.AcquireTime = &h.identity, &now
	}
	lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &seconds, &now
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AppliedWorksAnnotation, strconv.Itoa(h.recordCount()))
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.ReportDelayAnnotation, delay+"@"+now.UTC().Format(metav1.RFC3339Micro))
}
