// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// settled counts what is written at the hub and in the clusters in a while of quiet,
// by their audit logs. Leases are not in these: heartbeats are meant to go on.
func (l *lab) settled(ctx context.Context) error {
	planes := []*bed.Plane{l.bed.Hub}
	for _, name := range l.names {
		planes = append(planes, l.bed.Clusters[name].Plane)
	}
	logs := make([]*bed.Log, len(planes))
	for i, p := range planes {
		var err error
		if logs[i], err = p.AuditLog(); err != nil {
			return err
		}
	}
	begun := time.Now()
	for window := l.quiet / 6; ; { // what the clusters have reported is written yet
		writes, err := watched(ctx, logs, window)
		if err != nil {
			return err
		}
		if len(writes) == 0 {
			break
		}
	}
	after := time.Since(begun)
	writes, err := watched(ctx, logs, l.quiet)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(l.out, "settled after %.0f s; %d writes at the hub and in %d clusters in the %s after that, heartbeats aside\n",
		after.Seconds(), len(writes), len(l.names), l.quiet); err != nil {
		return err
	}
	for _, w := range writes[:min(len(writes), 20)] {
		if _, err := fmt.Fprintln(l.out, " ", w); err != nil {
			return err
		}
	}
	return nil
}

// watched is what the logs have after a while.
func watched(ctx context.Context, logs []*bed.Log, while time.Duration) (all []bed.Write, err error) {
	if err := pause(ctx, while); err != nil {
		return nil, err
	}
	for _, log := range logs {
		writes, err := log.Writes()
		if err != nil {
			return nil, err
		}
		all = append(all, writes...)
	}
	return all, nil
}

// resident prints the memory of a process that was left alone.
func (l *lab) resident(ctx context.Context, name string, id process.ID) error {
	if err := pause(ctx, rest); err != nil {
		return err
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", id.PID))
	if err != nil {
		return fmt.Errorf("read memory of the %s: %w", name, err)
	}
	for line := range bytes.Lines(raw) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			kib, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
			if err != nil {
				return fmt.Errorf("read memory of the %s: %w", name, err)
			}
			_, err = fmt.Fprintf(l.out, "%s: %.0f MiB resident at rest\n", name, float64(kib)/1024)
			return err
		}
	}
	return fmt.Errorf("read memory of the %s: process %d has none", name, id.PID)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
