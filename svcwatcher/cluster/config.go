// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/patchbay-cni/patchbay/network"
)

// Config is what the watcher of Services needs to know. Registry and Events are
// required.
type Config struct {
	// Registry gets the metrics.
	Registry prometheus.Registerer
	// Events makes Events on Services.
	Events Recorder
	// Ranges are what the cluster itself uses, and no Service leads to; nil for nothing.
	Ranges Ranges
	// Gather is how long what happens to Pods is collected before their Services
	// are looked at, so that a burst is one write; 20 ms when zero.
	Gather time.Duration
	// Workers is how many Services are worked at a time; 8 when zero.
	Workers int
}

// Recorder makes Events; a Kubernetes EventRecorder is one.
type Recorder interface {
	// Event reports on an object.
	Event(object runtime.Object, eventtype, reason, message string)
}

// Ranges follow what the cluster itself uses.
type Ranges interface {
	// Get returns the ranges; the error says why they are not known yet.
	Get() (*network.ClusterRanges, error)
	// Changed yields a value after changes, to one reader.
	Changed() <-chan struct{}
}

const (
	defaultGather  = 20 * time.Millisecond
	defaultWorkers = 8
	// again is when a Service is first looked at whose cached slices are older than
	// the ones that are there; then twice as long each time, up to mostDelay.
	again = 30 * time.Millisecond
	// leastDelay and mostDelay are between tries of what fails.
	leastDelay, mostDelay = 50 * time.Millisecond, 30 * time.Second
	// zoneDelay collects Nodes that change their zone: all Services are looked at.
	zoneDelay = time.Second
	// withheldAgain is when a Service is looked at again that has an address which another
	// Pod has too, or one that clusterSubnets permit.
	withheldAgain = time.Minute
)

func (c Config) withDefaults() Config {
	if c.Gather == 0 {
		c.Gather = defaultGather
	}
	if c.Workers == 0 {
		c.Workers = defaultWorkers
	}
	return c
}
