// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// EventComponent is the source component of the daemon's Events.
const EventComponent = "patchbayd"

// EventRecorder records Events on Pods, networks and this node's NodeNetwork. It increments the
// count of a repeated Event and limits the rate per object, because kubelet retries a failed
// sandbox every few seconds.
type EventRecorder struct {
	recorder record.EventRecorder
}

// NewEventRecorder starts an EventRecorder, which stops when ctx ends.
func NewEventRecorder(ctx context.Context, conn *kubeclient.Connection) (*EventRecorder, error) {
	sink, err := conn.EventSink()
	if err != nil {
		return nil, err
	}
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(sink)
	context.AfterFunc(ctx, b.Shutdown)
	source := corev1.EventSource{Component: EventComponent, Host: conn.Node}
	return &EventRecorder{recorder: b.NewRecorder(conn.Direct.Scheme(), source).WithLogger(logr.FromContextOrDiscard(ctx))}, nil
}

// ReportFailure records a Warning on a Pod whose networks could not be attached, and returns its
// reason.
func (e *EventRecorder) ReportFailure(pod *corev1.Pod, err error) string {
	reason := EventReason(err)
	e.recorder.Event(pod, corev1.EventTypeWarning, reason, err.Error())
	return reason
}

// ReportConflict records an address conflict as a Warning on the network, and on the Pod unless
// it is nil.
func (e *EventRecorder) ReportConflict(pod *corev1.Pod, net *network.Network, err error) {
	e.recorder.Event(&corev1.ObjectReference{
		APIVersion: v1.SchemeGroupVersion().String(), Kind: net.Ref.Kind,
		Namespace: net.Ref.Namespace, Name: net.Ref.Name, UID: types.UID(net.UID),
	}, corev1.EventTypeWarning, EventReason(err), err.Error())
	if pod != nil {
		e.ReportFailure(pod, err)
	}
}

// ReportLinkEvent records a change of this node's links on its NodeNetwork.
func (e *EventRecorder) ReportLinkEvent(nodeNetwork *corev1.ObjectReference, event netwatcher.LinkEvent) {
	eventType := corev1.EventTypeNormal
	if event.Warning {
		eventType = corev1.EventTypeWarning
	}
	e.recorder.Event(nodeNetwork, eventType, event.Reason, event.Message)
}

// EventReason returns the reason of an Event about an error of a Pod's networks or addresses. The
// first row that matches counts.
func EventReason(err error) string {
	for _, row := range []struct {
		target error
		reason string
	}{
		{allocator.ErrExhausted, v1.ReasonAddressesExhausted},
		{allocator.ErrTaken, v1.ReasonAddressTaken},
		{allocator.ErrOutside, v1.ReasonAddressOutsideNetwork},
		{allocator.ErrNoSubnet, v1.ReasonNetworkWithoutSubnet},
		{allocator.ErrDeleting, v1.ReasonNetworkDeleting},
		{attach.ErrNetworkDeleting, v1.ReasonNetworkDeleting},
		{allocator.ErrSubnetInUse, v1.ReasonSubnetChanged},
		{attach.ErrConflict, v1.ReasonAddressInUse},
		{attach.ErrNoDevice, v1.ReasonDeviceNotAllocated},
		{attach.ErrDeviceInUse, v1.ReasonDeviceInUse},
		{attach.ErrNotAllowed, v1.ReasonNetworkNotAllowed},
		{attach.ErrInvalidAnnotation, v1.ReasonInvalidAnnotations},
		{network.ErrInvalid, v1.ReasonInvalidNetwork},
		{attach.ErrNoDefaultNetwork, v1.ReasonNoDefaultNetwork},
		{attach.ErrNotFound, v1.ReasonNetworkNotFound},
		{attach.ErrTryAgain, v1.ReasonNetworkNotReady},
	} {
		if errors.Is(err, row.target) {
			return row.reason
		}
	}
	return v1.ReasonNetworkAttachmentFailed
}
