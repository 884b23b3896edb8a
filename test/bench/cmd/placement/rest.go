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
	if err := pause(ctx, l.quiet); err != nil {
		return err
	}
	var all []bed.Write
	for _, log := range logs {
		writes, err := log.Writes()
		if err != nil {
			return err
		}
		all = append(all, writes...)
	}
	if _, err := fmt.Fprintf(l.out, "%d writes at the hub and in %d clusters in %s of quiet, heartbeats aside\n", len(all), len(l.names), l.quiet); err != nil {
		return err
	}
	for _, w := range all[:min(len(all), 20)] {
		if _, err := fmt.Fprintln(l.out, " ", w); err != nil {
			return err
		}
	}
	return nil
}

// resident reads the memory of a process that was left alone, in MiB.
func resident(ctx context.Context, id process.ID) (float64, error) {
	if err := pause(ctx, rest); err != nil {
		return 0, err
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", id.PID))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range bytes.Lines(raw) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			kib, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
			return float64(kib) / 1024, err
		}
	}
	return 0, fmt.Errorf("read memory of process %d: no VmRSS", id.PID)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
