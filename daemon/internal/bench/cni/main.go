// SPDX-License-Identifier: Apache-2.0

// Command cni measures ADD and DEL of one MACVLAN interface with one address. It compares Patchbay's plugin
// and daemon without a cluster, the same with a real etcd and API server, and Debian's macvlan with
// host-local, in turns on the same kernel. It also measures the time until the plugin sends its first byte
// to the daemon. It needs root and uses namespaces of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cni:", err)
		os.Exit(1)
	}
}

// options has the size of the benchmark and the paths of its programs.
type options struct {
	plugin, daemon, peers, dir string
	runs, pods                 int
	stage                      string
}

// Stages of the program: it starts itself again in new namespaces, and there again as the daemon.
const (
	stageOuter  = "outer"
	stageInner  = "inner"
	stageDaemon = "daemon"
)

// parse parses the flags.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("cni", flag.ContinueOnError)
	flags.StringVar(&o.plugin, "plugin", "bin/patchbay", "`file` of Patchbay's plugin")
	flags.StringVar(&o.daemon, "daemon", "bin/patchbayd", "`file` of Patchbay's node daemon")
	flags.StringVar(&o.peers, "peers", "/usr/lib/cni", "`folder` of Debian's plugins")
	flags.IntVar(&o.runs, "runs", 5, "runs of each contender")
	flags.IntVar(&o.pods, "pods", 160, "Pods added and deleted in a run")
	flags.StringVar(&o.stage, "stage", stageOuter, "set by the program itself")
	flags.StringVar(&o.dir, "dir", "", "set by the program itself")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("parse flags: %w", err)
	}
	return o, nil
}

// run runs a stage of the program.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	switch o.stage {
	case stageInner:
		if err := compare(ctx, o, out); err != nil {
			return err
		}
		return reportStartup(ctx, o, out)
	case stageDaemon:
		return serveDaemon(ctx, o)
	}
	return runIsolated(ctx, o, args, out)
}
