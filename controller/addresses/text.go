// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// mostNames and mostText bound the names in a message, and their bytes: Events hold 1 KiB,
// and the name of a node may have 253 bytes.
const mostNames, mostText = 8, 350

// list writes names for a message, the first few and how many more.
func list(names []string) string { return join(names, ", ", 1, mostText) }

// join is list with something else between the names. It writes at least so many, and more
// while they have at most so many bytes.
func join(names []string, between string, least, most int) string {
	text := ""
	for i, name := range names {
		if i == mostNames || i >= least && len(text)+len(between)+len(name) > most {
			return fmt.Sprintf("%s and %d more", text, len(names)-i)
		}
		if i > 0 {
			text += between
		}
		text += name
	}
	return text
}

// poolText says how a pool is, and what to do.
func poolText(reason string, u use) string {
	switch reason {
	case v1.ReasonExhausted:
		return fmt.Sprintf("%d of %d %s addresses are in use or held ready by nodes: new Pods wait. "+
			"Widen the allocation pool in spec.Options, or delete Pods; kubelet retries by itself", u.inUse, u.capacity, u.family)
	case v1.ReasonScarce:
		return fmt.Sprintf("%d of %d %s addresses are in use or held ready by nodes (as of this change). "+
			"Widen the allocation pool in spec.Options before it is exhausted", u.inUse, u.capacity, u.family)
	}
	return fmt.Sprintf("%d of %d %s addresses are in use or held ready by nodes (as of this change); "+
		"status.allocated has the number now", u.inUse, u.capacity, u.family)
}

// deferredText names the nodes that report too many rollbacks, and says what to do.
func deferredText(deferred map[string]metav1.MicroTime) string {
	names := make([]string, 0, len(deferred))
	for _, name := range slices.Sorted(maps.Keys(deferred)) {
		names = append(names, fmt.Sprintf("%s (until %s)", name, deferred[name].UTC().Format(time.RFC3339)))
	}
	return "these nodes have started several recoveries of this network by reports of older state: " + list(names) +
		". Until then, further reports stop only the node itself. If etcd was not restored that often, look whether the node was taken over"
}

// recoveringText says whom a recovery waits for, and what to do.
func recoveringText(w waiting) string {
	text := "status.ipam was older than what a node remembers (was etcd restored?) at " + w.since +
		": no address is given out until these nodes have said what they use: " + list(w.awaited) +
		". For one that is off: kubectl patchbay ipam skip NODE"
	if len(w.skipped) > 0 {
		text += ". Left out on request: " + list(w.skipped)
	}
	return text
}
