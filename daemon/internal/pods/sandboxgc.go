// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// sandboxGCInterval is the time between two sweeps. A sandbox must be gone in two of them.
const sandboxGCInterval = 45 * time.Second

// SandboxGC deletes sandboxes that are gone and whose DEL never came. The runtime sends no DEL
// when it is stopped, and sends it to another plugin when its CNI configuration was replaced
// while the Pod ran.
type SandboxGC struct {
	// Records returns the readable records of the journal, and an error if others are corrupt.
	Records func() ([]*attach.Record, error)
	// NetnsExists reports whether a network namespace exists.
	NetnsExists func(netns string) (bool, error)
	// Pods reads the Pod of a sandbox.
	Pods *Getter
	// DeleteSandbox does what DEL does.
	DeleteSandbox func(ctx context.Context, rec *attach.Record) error

	// suspects had no network namespace at the last sweep.
	suspects map[attach.RecordKey]bool
}

// Run sweeps at intervals until ctx ends.
func (s *SandboxGC) Run(ctx context.Context) error {
	tick := time.NewTicker(sandboxGCInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
				logr.FromContextOrDiscard(ctx).Error(err, "Failed to delete sandboxes that are gone")
			}
		}
	}
}

// Sweep deletes the sandboxes that had no network namespace at the last sweep either, and whose
// Pod is gone. A namespace that is missing in one sweep only may be about to appear.
func (s *SandboxGC) Sweep(ctx context.Context) error {
	records, err := s.Records()
	errs := []error{err}
	suspects := map[attach.RecordKey]bool{}
	for _, rec := range records {
		if rec.State == attach.Released || rec.Netns == "" {
			continue
		}
		if exists, err := s.NetnsExists(rec.Netns); exists || err != nil {
			errs = append(errs, err)
			continue
		}
		suspects[rec.Key()] = true
		if s.suspects[rec.Key()] {
			errs = append(errs, s.collect(ctx, rec))
		}
	}
	s.suspects = suspects
	return errors.Join(errs...)
}

// collect deletes one sandbox unless its Pod exists. The runtime then still has the sandbox and
// sends a DEL.
func (s *SandboxGC) collect(ctx context.Context, rec *attach.Record) error {
	_, err := s.Pods.Get(ctx, rec.PodNamespace, rec.PodName, rec.PodUID)
	if !errors.Is(err, attach.ErrNotFound) {
		return err
	}
	logr.FromContextOrDiscard(ctx).Info("Deleting a sandbox that is gone and got no DEL",
		"pod", rec.PodNamespace+"/"+rec.PodName, "sandbox", rec.ContainerID)
	return s.DeleteSandbox(ctx, rec)
}
