// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// EventComponent is the source of the daemon's Events.
const EventComponent = "patchbayd"

// Events reports on Pods as users see them with kubectl describe. The recorder
// counts repetitions of one Event up instead of adding more, and limits each
// Pod's rate: kubelet retries a refused sandbox every few seconds.
type Events struct {
	recorder record.EventRecorder
}

// NewEvents starts a recorder that stops when ctx ends.
func NewEvents(ctx context.Context, conn *Connection) (*Events, error) {
	c, err := typedcorev1.NewForConfig(conn.rest)
	if err != nil {
		return nil, fmt.Errorf("make client for Events: %w", err)
	}
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.Events("")})
	context.AfterFunc(ctx, b.Shutdown)
	source := corev1.EventSource{Component: EventComponent, Host: conn.Node}
	return &Events{recorder: b.NewRecorder(conn.Direct.Scheme(), source).WithLogger(logr.FromContextOrDiscard(ctx))}, nil
}

// ReportFailure reports why a Pod has no network, as a Warning.
func (e *Events) ReportFailure(pod *corev1.Pod, err error) {
	e.recorder.Event(pod, corev1.EventTypeWarning, eventReason(err), err.Error())
}

// ReportConflict reports an address conflict on the network, and on the Pod unless it is nil.
func (e *Events) ReportConflict(pod *corev1.Pod, net *network.Network, err error) {
	e.recorder.Event(&corev1.ObjectReference{
		APIVersion: v1.SchemeGroupVersion().String(), Kind: net.Ref.Kind,
		Namespace: net.Ref.Namespace, Name: net.Ref.Name, UID: types.UID(net.UID),
	}, corev1.EventTypeWarning, eventReason(err), err.Error())
	if pod != nil {
		e.ReportFailure(pod, err)
	}
}

// ReportLinkEvent reports on this node's NodeNetwork what got better or worse with its links:
// kubectl describe nodenetwork shows it.
func (e *Events) ReportLinkEvent(ctx context.Context, nodes *NodeNetworks, n netwatcher.LinkEvent) {
	ref := &corev1.ObjectReference{
		APIVersion: v1.SchemeGroupVersion().String(), Kind: "NodeNetwork", Name: nodes.conn.Node, UID: nodes.ownUID(ctx),
	}
	kind := corev1.EventTypeNormal
	if n.Warning {
		kind = corev1.EventTypeWarning
	}
	e.recorder.Event(ref, kind, n.Reason, n.Message)
}

// eventReasonOther is the reason of an Event about an error of no known sort.
const eventReasonOther = "NetworkAttachmentFailed"

// eventReason is one word for an error, the same for each occurrence, to select
// Events by. The first row that fits counts.
func eventReason(err error) string {
	for _, r := range []struct {
		sort   error
		reason string
	}{
		{claims.ErrExhausted, "AddressesExhausted"},
		{claims.ErrTaken, "AddressTaken"},
		{claims.ErrOutside, "AddressOutsideNetwork"},
		{claims.ErrNoSubnet, "NetworkWithoutSubnet"},
		{claims.ErrDeleting, "NetworkDeleting"},
		{claims.ErrSubnetInUse, "SubnetChanged"},
		{attach.ErrConflict, "AddressInUse"},
		{attach.ErrInvalidRequest, "InvalidRequest"},
		{network.ErrInvalid, "InvalidNetwork"},
		{attach.ErrNotFound, "NetworkNotFound"},
		{attach.ErrTryAgain, "NetworkNotReady"},
	} {
		if errors.Is(err, r.sort) {
			return r.reason
		}
	}
	return eventReasonOther
}
