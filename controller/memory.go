// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"os"
	"runtime/debug"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// gcPercent trades some processor time for memory: nearly all of it are caches, which
// would otherwise take twice their size.
const gcPercent = 25

// setGCPercent sets it, unless who runs this knows better.
func setGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// memoryReleaser gives what filling the caches took back to the system, once, whether this
// replica leads or not: the runtime would keep it for minutes.
type memoryReleaser struct {
	synced func(context.Context) bool
	free   func()
}

var _ manager.LeaderElectionRunnable = memoryReleaser{}

// Start returns when it is done.
func (r memoryReleaser) Start(ctx context.Context) error {
	if r.synced(ctx) {
		r.free()
	}
	return nil
}

// NeedLeaderElection is false: replicas that wait have the same caches.
func (memoryReleaser) NeedLeaderElection() bool { return false }
