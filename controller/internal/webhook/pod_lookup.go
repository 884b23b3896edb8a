// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// podLookup finds out whether the Pods of DanmEps end. It remembers those that are gone. A mistake makes a
// deletion wait, and allows none.
type podLookup struct {
	reader client.Reader
	gone   map[types.UID]struct{} // DanmEps
}

// podLookupResult is the DanmEp that decides how long a network stays in use.
type podLookupResult struct {
	index    int              // of the DanmEp
	state    network.PodState // of its Pod
	soon     bool             // all nodes detach their Pods without a user's help, soon
	complete bool             // all Pods have been looked up
}

// decisive returns the first of the DanmEps that does not end soon, otherwise the first one. It looks up
// a number of Pods at most, and expects of the others that they end soon.
func (l *podLookup) decisive(ctx context.Context, eps []*v1.DanmEp, limit int) podLookupResult {
	result := podLookupResult{state: network.PodGone, soon: true, complete: true}
	for i, ep := range eps {
		if _, gone := l.gone[ep.UID]; gone {
			continue
		}
		if limit == 0 {
			result.complete = false
			break
		}
		limit--
		state, soon := l.stateOf(ctx, ep)
		if !soon {
			return podLookupResult{index: i, state: state, complete: true}
		}
		if i == 0 {
			result.state = state
		}
	}
	return result
}

// stateOf returns whether the Pod of a DanmEp ends, and whether its node detaches it soon. No daemon removes a
// DanmEp of another program. An error means that the Pod may run.
func (l *podLookup) stateOf(ctx context.Context, ep *v1.DanmEp) (state network.PodState, soon bool) {
	pod, err := kube.PodOf(ctx, l.reader, ep)
	switch {
	case err != nil, ep.Spec.NetworkUID == "":
		return network.PodRuns, false
	case pod == nil:
		if l.gone == nil {
			l.gone = map[types.UID]struct{}{}
		}
		l.gone[ep.UID] = struct{}{}
		return network.PodGone, true
	case pod.DeletionTimestamp == nil:
		return network.PodRuns, false
	}
	// The timestamp is the end of the grace period.
	return network.PodTerminating, len(pod.Finalizers) == 0 && time.Until(pod.DeletionTimestamp.Time) < returnTimeout
}
