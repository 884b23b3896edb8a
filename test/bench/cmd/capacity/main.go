// SPDX-License-Identifier: Apache-2.0

// Command capacity measures what an operator of a cluster plans with: the resident memory of the node daemon, the
// controller and the operator at rest, their requests to the API server while nothing happens, and the sizes of
// objects in etcd.
//
// etcd, API server and programs are real. The programs have the flags, the variables and the ServiceAccounts of
// their manifests, with tokens of these accounts. One node has a daemon, with VXLAN links in a network namespace of
// its own, and one attached Pod. The other nodes and Pods are copies of what this daemon has written: no program
// runs there. It needs root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "capacity:", err)
		os.Exit(1)
	}
}

// options are the size of the cluster, and how long it is watched.
type options struct {
	nodes, networks, pods, runs int
	settle, idle                time.Duration
	inner                       bool
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("capacity", flag.ContinueOnError)
	flags.IntVar(&o.nodes, "nodes", 1000, "nodes")
	flags.IntVar(&o.networks, "networks", 100, "ClusterNetworks, each with a VXLAN on each node")
	flags.IntVar(&o.pods, "pods", 20, "Pods on each node, each with one interface")
	flags.IntVar(&o.runs, "runs", 3, "how often the programs start and are measured")
	flags.DurationVar(&o.settle, "settle", time.Minute, "how long no program must have written anything before the measurement")
	flags.DurationVar(&o.idle, "idle", time.Minute, "how long requests are counted")
	flags.BoolVar(&o.inner, "inner", false, "set by the program itself: it runs in its own network namespace")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("parse flags: %w", err)
	}
	const mostNodes, mostNetworks = 60_000, 4_000 // the addresses and VNIs below
	if o.nodes < 1 || o.nodes > mostNodes || o.networks < 1 || o.networks > mostNetworks || o.pods < 1 || o.runs < 1 {
		return o, fmt.Errorf("flags --nodes=%d --networks=%d --pods=%d --runs=%d: must be 1 or more, with at most %d nodes and %d networks",
			o.nodes, o.networks, o.pods, o.runs, mostNodes, mostNetworks)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.inner {
		return measureCluster(ctx, o, out)
	}
	// The kernel removes the links with the namespace.
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{innerFlag}, args...)...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run in a network namespace (needs root): %w", err)
	}
	return nil
}

const innerFlag = "--inner"

// measureCluster makes the cluster, and measures it.
func measureCluster(ctx context.Context, o options, out io.Writer) (err error) {
	c, err := newCluster(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close(context.WithoutCancel(ctx))) }()
	if err := c.fill(ctx); err != nil {
		return err
	}
	if err := c.install(ctx); err != nil {
		return err
	}
	return (&meter{cluster: c, audit: &auditLog{file: c.auditFile}}).measure(ctx, out)
}
