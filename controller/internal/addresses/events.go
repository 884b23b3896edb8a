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

// EventRecorder makes Events; record.EventRecorder of client-go implements it.
type EventRecorder interface {
	// Event makes an Event on an object.
	Event(object runtime.Object, eventtype, reason, message string)
}

// NewEventRecorder starts a recorder that stops when ctx ends. The manager's own recorder does not
// serve: it merges a second Event with another message into the first one, so that the result of a
// second rebuild would be lost.
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

// truncatingRecorder cuts messages to the length that an Event may have: errors, and names that
// nodes and tenants choose, may have any length.
type truncatingRecorder struct{ EventRecorder }

// Event implements EventRecorder.
func (r truncatingRecorder) Event(of runtime.Object, kind, reason, message string) {
	r.EventRecorder.Event(of, kind, reason, truncateMessage(message))
}

// truncateMessage cuts a text to 1 KiB, the most that an Event holds.
func truncateMessage(text string) string {
	const maxLength, ellipsis = 1024, "…"
	if len(text) <= maxLength {
		return text
	}
	return strings.ToValidUTF8(text[:maxLength-len(ellipsis)], "") + ellipsis
}
