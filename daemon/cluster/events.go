// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// Component is the source of the daemon's Events.
const Component = "patchbayd"

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
	source := corev1.EventSource{Component: Component, Host: conn.Node}
	return &Events{recorder: b.NewRecorder(conn.Direct.Scheme(), source).WithLogger(logr.FromContextOrDiscard(ctx))}, nil
}

// Refuse reports why a Pod has no network, as a Warning.
func (e *Events) Refuse(pod *corev1.Pod, err error) {
	e.recorder.Event(pod, corev1.EventTypeWarning, reason(err), err.Error())
}
