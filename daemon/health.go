// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/patchbay-cni/patchbay/daemon/internal/addresses"
)

// errNotInstalled is why Pods cannot be attached after the allocator has opened.
var errNotInstalled = errors.New("the plugin is not installed yet")

// readiness is the daemon's readiness: whether Pods can be attached.
type readiness struct {
	allocator *addresses.DeferredAllocator
	// defaultDelegate returns why the node lacks the CNI configuration that a flag names. It counts until the plugin was
	// installed: later, other Pods can be attached without it, and the NodeNetwork reports it.
	defaultDelegate func() error
	// ready is true after the plugin was installed.
	ready atomic.Bool
}

// check returns nil when Pods can be attached, and otherwise the reason why not.
func (r *readiness) check(context.Context) error {
	if r.ready.Load() {
		return nil
	}
	if err := r.allocator.Err(); err != nil {
		return err
	}
	if err := r.defaultDelegate(); err != nil {
		return err
	}
	return errNotInstalled
}
