// SPDX-License-Identifier: Apache-2.0

// Command agent measures an agent that has nothing to do: its resident memory, and what
// it writes, at the hub and in its cluster.
//
// Hub, agent, API servers, etcd and controller manager are real; KWOK plays the Pods.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/bench/measure"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// east is the cluster.
const east = "east"

func main() {
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// lab is a bed with hub and agent.
type lab struct {
	bed   *bed.Bed
	agent process.ID

	works, replicas          int
	settlePeriod, idlePeriod time.Duration
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	l := &lab{}
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	flags.IntVar(&l.works, "works", 100, "Works: half are Deployments, half ConfigMaps")
	flags.IntVar(&l.replicas, "replicas", 2, "replicas of each Deployment")
	flags.DurationVar(&l.settlePeriod, "settle", 30*time.Second, "how long it is left alone first")
	flags.DurationVar(&l.idlePeriod, "idle", 60*time.Second, "how long it is then watched")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	if l.bed, err = bed.Launch(ctx, bed.Config{Clusters: []string{east}}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.bed.Close(context.WithoutCancel(ctx))) }()
	if _, err := l.bed.StartHub(ctx); err != nil {
		return err
	}
	if err := l.bed.CreateCluster(ctx, east, v1alpha1.ClusterSpec{}); err != nil {
		return err
	}
	if l.agent, err = l.bed.StartAgent(ctx, east); err != nil {
		return err
	}
	if err := l.fill(ctx); err != nil {
		return err
	}
	return l.measure(ctx, out)
}

// measure leaves the agent alone, watches it, and prints the figures.
func (l *lab) measure(ctx context.Context, out io.Writer) error {
	if err := sleepContext(ctx, l.settlePeriod); err != nil {
		return err
	}
	writes, err := l.countWrites()
	if err != nil {
		return err
	}
	if err := sleepContext(ctx, l.idlePeriod); err != nil {
		return err
	}
	size, err := residentMemory(l.agent)
	if err != nil {
		return err
	}
	found, err := writes()
	if err != nil {
		return err
	}
	for _, w := range found {
		fmt.Fprintln(out, w)
	}
	table := measure.Table{
		Title:   fmt.Sprintf("an agent with %d Works and %d Pods, after %v of rest", l.works, l.works/2*l.replicas, l.settlePeriod),
		Columns: []string{"value"}, Alone: true,
		Rows: []measure.Row{
			{Name: "resident memory, MiB", Columns: []measure.Series{{size}}},
			{Name: fmt.Sprintf("writes in %v, heartbeats left out", l.idlePeriod), Columns: []measure.Series{{float64(len(found))}}},
		},
	}
	return table.Write(out)
}

// residentMemory reads a process's memory, in MiB.
func residentMemory(id process.ID) (float64, error) {
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

// countWrites begins to count what the agent writes at the hub and in its cluster.
func (l *lab) countWrites() (func() ([]bed.Write, error), error) {
	hub, errHub := l.bed.Hub.AuditLog()
	cluster, errCluster := l.bed.Clusters[east].AuditLog()
	if err := errors.Join(errHub, errCluster); err != nil {
		return nil, err
	}
	return func() ([]bed.Write, error) {
		var all []bed.Write
		for user, log := range map[string]*bed.AuditReader{v1alpha1.ClusterUserPrefix + east: hub, bed.AgentUser: cluster} {
			writes, err := log.Writes()
			if err != nil {
				return nil, err
			}
			for _, w := range writes {
				if w.User == user {
					all = append(all, w)
				}
			}
		}
		return all, nil
	}, nil
}

func sleepContext(ctx context.Context, long time.Duration) error {
	select {
	case <-time.After(long):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
