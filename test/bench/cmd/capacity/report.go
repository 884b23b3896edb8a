// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/patchbay-cni/patchbay/test/bench/measure"
)

// errBusy means that the programs do not stop writing.
var errBusy = errors.New("the programs still write")

// meter measures the programs of a cluster that is filled.
type meter struct {
	*cluster

	audit *auditLog
}

// measure starts the programs several times, leaves them alone, and prints what they need.
func (m *meter) measure(ctx context.Context, out io.Writer) error {
	table := measure.Table{
		Title: fmt.Sprintf("%d nodes, %d ClusterNetworks, %d Pods with one interface on each node; %d starts, nothing was written for %v before",
			m.nodes, m.networks, m.pods, m.runs, m.settle),
		Columns: []string{"MiB at rest", "MiB at its peak", fmt.Sprintf("requests in %v", m.idle), "of them for the Lease"}, Alone: true,
	}
	for _, p := range m.programs() {
		table.Rows = append(table.Rows, measure.Row{Name: p.name, Columns: make([]measure.Series, len(table.Columns))})
	}
	var details strings.Builder
	for run := range m.runs {
		requests, from, before, err := m.watch(ctx)
		if err != nil {
			return err
		}
		for i, p := range m.programs() {
			now, peak, err := p.memory()
			if err != nil {
				return err
			}
			made := countRequests(requests, p.user(), from, before)
			all, leases := made.sum()
			for column, value := range []float64{now, peak, float64(all), float64(leases)} {
				table.Rows[i].Columns[column] = append(table.Rows[i].Columns[column], value)
			}
			fmt.Fprintf(&details, "start %d, %s requested: %s\n", run+1, p.name, made)
		}
		if err := m.stop(ctx); err != nil {
			return err
		}
	}
	if err := table.Write(out); err != nil {
		return err
	}
	if _, err := io.WriteString(out, details.String()); err != nil {
		return err
	}
	return m.writeSizes(ctx, out)
}

// watch starts the programs, waits until they are at rest, and returns their requests with the time in which they
// count.
func (m *meter) watch(ctx context.Context) (requests []request, from, before time.Time, err error) {
	if err := m.start(ctx); err != nil {
		return nil, from, before, err
	}
	var wrote request
	last := time.Now()
	err = await(ctx, "the programs to be at rest", func(context.Context) error {
		all, err := m.audit.read()
		for _, r := range all {
			if r.isWrite() && !r.isLease() && r.Received.After(last) {
				last, wrote = r.Received, r
			}
		}
		if err == nil && time.Since(last) < m.settle {
			err = fmt.Errorf("%w: %s by %s", errBusy, wrote.what(), wrote.User.Username)
		}
		return err
	})
	if err != nil {
		return nil, from, before, err
	}
	from = time.Now()
	if err := m.probe(ctx); err != nil {
		return nil, from, before, err
	}
	before = time.Now()
	requests, err = m.audit.read()
	return requests, from, before, err
}

// probe probes all programs for the time in which requests count.
func (m *meter) probe(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, m.idle)
	defer cancel()
	all, limited := errgroup.WithContext(limited)
	for _, p := range m.programs() {
		all.Go(func() error { return p.probe(limited) })
	}
	return errors.Join(all.Wait(), ctx.Err())
}

// writeSizes prints the sizes of objects in etcd.
func (m *meter) writeSizes(ctx context.Context, out io.Writer) error {
	resources := []string{"clusternetworks", "danmeps", "nodenetworks"}
	sizes := map[string][]int{}
	written := map[string]int{} // by the daemon
	err := m.env.ControlPlane.WalkStored(ctx, func(key string, value []byte) {
		for _, resource := range resources {
			name, ok := strings.CutPrefix(key, "/danm.io/"+resource+"/")
			if !ok {
				continue
			}
			sizes[resource] = append(sizes[resource], len(value))
			if name == firstNode || strings.HasPrefix(name, podNamespace+"/attached") {
				written[resource] = len(value)
			}
		}
	})
	if err != nil {
		return err
	}
	for _, resource := range resources {
		all := slices.Sorted(slices.Values(sizes[resource]))
		if len(all) == 0 {
			return fmt.Errorf("%w: %s", errNoObjects, resource)
		}
		total := 0
		for _, n := range all {
			total += n
		}
		fmt.Fprintf(out, "%d %s in etcd: %d bytes in the median, %d at most, %.1f MiB together", len(all), resource, all[len(all)/2], all[len(all)-1], float64(total)/(1<<20))
		if n := written[resource]; n > 0 {
			fmt.Fprintf(out, "; the one that the daemon has written: %d bytes", n)
		}
		if _, err := fmt.Fprintln(out); err != nil {
			return err
		}
	}
	return nil
}

var errNoObjects = errors.New("etcd has no objects of the resource")
