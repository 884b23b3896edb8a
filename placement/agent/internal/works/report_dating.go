// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// localReadTimeout bounds the read that proves that the cluster's API server answers.
const localReadTimeout = 3 * time.Second

// reportDating computes from which time on the hub may not know what has changed in the cluster.
type reportDating struct {
	// local is the cluster's API server. Namespace is the agent's.
	local      client.Reader
	namespace  string
	watches    *watchHealth
	unreported *unreportedChanges
	// rereadAll makes the agent read all objects again.
	rereadAll func(context.Context)

	started atomic.Bool
	lost    bool // the last read failed; only delay uses it
}

// start records that the agent knows all Works and is about to report on all.
func (d *reportDating) start() { d.started.Store(true) }

// delay returns the age of the oldest change in the cluster that the hub does not have. It returns false while the
// agent cannot know of all changes: the cluster's API server or a watch does not answer, or what happened meanwhile
// is not reported yet.
func (d *reportDating) delay(ctx context.Context) (time.Duration, bool) {
	if err := d.readLocal(ctx); err != nil {
		if !d.lost {
			log(ctx).Info("The cluster's API server does not answer: the hub does not count on this cluster", "cause", err.Error())
		}
		d.lost = true
		return 0, false
	}
	if d.lost {
		log(ctx).Info("The cluster's API server answers again")
		d.lost = false
		d.rereadAll(ctx)
	}
	if !d.started.Load() || !d.watches.isComplete() {
		return 0, false
	}
	return d.unreported.age()
}

// readLocal reads something from the storage of the cluster's API server. It needs no right beyond those for placed
// objects.
func (d *reportDating) readLocal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, localReadTimeout)
	defer cancel()
	return client.IgnoreNotFound(d.local.Get(ctx, client.ObjectKey{Name: d.namespace}, &corev1.Namespace{}))
}
