// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// Component is the source of the controller's Events.
const Component = "patchbay-controller"

// EventRecorder makes Events; a Kubernetes EventRecorder is one.
type EventRecorder interface {
	// Event reports on an object.
	Event(object runtime.Object, eventtype, reason, message string)
}

// NewEventRecorder starts a recorder that stops when ctx ends. It is not the manager's:
// that one counts a second Event with another message as the first one again, and
// what a rebuild changed would be lost.
func NewEventRecorder(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme) (EventRecorder, error) {
	c, err := typedcorev1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client for Events: %w", err)
	}
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.Events("")})
	context.AfterFunc(ctx, b.Shutdown)
	events := b.NewRecorder(scheme, corev1.EventSource{Component: Component}).WithLogger(logr.FromContextOrDiscard(ctx))
	return truncatingRecorder{events}, nil
}

// truncatingRecorder cuts messages: errors, and what nodes and tenants have named, may have any
// length.
type truncatingRecorder struct{ EventRecorder }

// Event implements Recorder.
func (r truncatingRecorder) Event(of runtime.Object, kind, reason, message string) {
	r.EventRecorder.Event(of, kind, reason, truncateMessage(message))
}

// truncateMessage is a text as an Event holds it: at most 1 KiB.
func truncateMessage(text string) string {
	const most, cut = 1024, "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(cut)], "") + cut
}
