// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// sandboxGCInterval is the time between two looks for abandoned sandboxes. One is
// ended at the second look that finds it so.
const sandboxGCInterval = 45 * time.Second

// SandboxGC ends sandboxes that are gone and whose DEL never came: a runtime
// that was stopped, or whose CNI configuration was exchanged while the Pod ran,
// sends it to nobody or to another plugin.
type SandboxGC struct {
	// Records returns the journal, as far as it can be read.
	Records func() ([]*attach.Record, error)
	// NetnsExists reports whether a network namespace is there.
	NetnsExists func(netns string) (bool, error)
	// Pods finds out whether the Pod is gone, too.
	Pods *Pods
	// DeleteSandbox does what DEL would have done.
	DeleteSandbox func(ctx context.Context, rec *attach.Record) error

	// suspects were without a namespace at the last look.
	suspects map[recordKey]bool
}

// Run looks now and then until ctx ends.
func (a *SandboxGC) Run(ctx context.Context) error {
	tick := time.NewTicker(sandboxGCInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := a.Sweep(ctx); err != nil && ctx.Err() == nil {
				logr.FromContextOrDiscard(ctx).Error(err, "Cannot end sandboxes that are gone")
			}
		}
	}
}

// Sweep ends the sandboxes that were without a namespace at the last look, too,
// and whose Pod is gone.
func (a *SandboxGC) Sweep(ctx context.Context) error {
	records, err := a.Records()
	errs := []error{err}
	suspects := map[recordKey]bool{}
	for _, rec := range records {
		key := recordKey{rec.ContainerID, rec.IfName}
		if rec.State == attach.Released || rec.Netns == "" {
			continue
		}
		if alive, err := a.NetnsExists(rec.Netns); alive || err != nil {
			errs = append(errs, err)
			continue
		}
		if suspects[key] = true; a.suspects[key] {
			errs = append(errs, a.collect(ctx, rec))
		}
	}
	a.suspects = suspects
	return errors.Join(errs...)
}

// collect ends one sandbox, unless its Pod is there: then its runtime still knows of
// the sandbox.
func (a *SandboxGC) collect(ctx context.Context, rec *attach.Record) error {
	_, err := a.Pods.Get(ctx, rec.PodNamespace, rec.PodName, rec.PodUID)
	if !errors.Is(err, attach.ErrNotFound) {
		return err
	}
	logr.FromContextOrDiscard(ctx).Info("Ending a sandbox that is gone and got no DEL",
		"pod", rec.PodNamespace+"/"+rec.PodName, "sandbox", rec.ContainerID)
	return a.DeleteSandbox(ctx, rec)
}
