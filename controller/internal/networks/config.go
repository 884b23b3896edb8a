// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
)

// Config configures a Controller. Registry and Events are required.
type Config struct {
	// Events gets Events about networks that become ready or not ready.
	Events EventRecorder
	// Registry gets the metrics.
	Registry prometheus.Registerer
	// StabilizationWindow is how long a change must last before it is written, except for a network
	// that becomes ready; 10 s when zero.
	StabilizationWindow time.Duration
	// MinWriteInterval is the least time between two writes of one network; 10 s when zero.
	MinWriteInterval time.Duration
	// Timeout bounds one reconciliation; 30 s when zero.
	Timeout time.Duration
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.StabilizationWindow, 10 * time.Second}, {&c.MinWriteInterval, 10 * time.Second}, {&c.Timeout, 30 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// EventRecorder makes Events; record.EventRecorder of client-go implements it.
type EventRecorder interface {
	// Event makes an Event on an object.
	Event(object runtime.Object, eventtype, reason, message string)
}
