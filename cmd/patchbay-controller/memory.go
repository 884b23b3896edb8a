// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"runtime/debug"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// gcPercent trades some processor time for memory: nearly all of it are caches, which
// would otherwise take twice their size.
const gcPercent = 25

// limitGarbage sets it, unless who runs this knows better.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// release gives what filling the caches took back to the system, once, whether this
// replica leads or not: the runtime would keep it for minutes.
type release struct {
	synced func(context.Context) bool
	free   func()
}

var _ manager.LeaderElectionRunnable = release{}

// Start returns when it is done.
func (r release) Start(ctx context.Context) error {
	if r.synced(ctx) {
		r.free()
	}
	return nil
}

// NeedLeaderElection is false: replicas that wait have the same caches.
func (release) NeedLeaderElection() bool { return false }
