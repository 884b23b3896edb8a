// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"os"
	"runtime/debug"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// gcPercent trades processor time for memory: nearly all memory is caches, which would otherwise
// need twice their size.
const gcPercent = 25

// setGCPercent sets it, unless the environment variable GOGC does.
func setGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// memoryReleaser returns the memory that filling the caches needed to the system, once, whether
// this replica leads or not. The runtime would keep it for minutes.
type memoryReleaser struct {
	synced func(context.Context) bool
	free   func()
}

var _ manager.LeaderElectionRunnable = memoryReleaser{}

// Start returns when it has released the memory.
func (r memoryReleaser) Start(ctx context.Context) error {
	if r.synced(ctx) {
		r.free()
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: replicas that do not lead have the
// same caches.
func (memoryReleaser) NeedLeaderElection() bool { return false }
