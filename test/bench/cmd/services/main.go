// SPDX-License-Identifier: Apache-2.0

// Command services measures the watcher of Services, the real controller as a process
// of its own, against a real API server: how long all Services take from nothing and
// after a restart, and how much memory; how long until one Pod that turns ready is in
// its slice, in how many writes; and what a minute costs in which a tenth of the Pods
// flaps, with nothing lost or stale at its end. Pods have no kubelet: their status is
// written by this program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/services/scene"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
		os.Exit(1)
	}
}

// options are the size of the benchmark.
type options struct {
	services, podsPerService, samples, workers int
	flap                                       time.Duration
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("services", flag.ContinueOnError)
	flags.IntVar(&o.services, "services", 1000, "Services")
	flags.IntVar(&o.podsPerService, "each", 20, "Pods of each")
	flags.IntVar(&o.samples, "samples", 500, "Pods that turn ready, one after the other")
	flags.IntVar(&o.workers, "workers", 16, "clients that make and flap Pods")
	flags.DurationVar(&o.flap, "flap", time.Minute, "how long a tenth of the Pods flaps")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("parse flags: %w", err)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "services")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, err := scene.Build(ctx, dir)
	if err != nil {
		return err
	}
	env, err := apitest.Launch(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Close(context.WithoutCancel(ctx))) }()
	f, err := newFleet(ctx, env, o)
	if err != nil {
		return err
	}
	return f.measure(ctx, program, out)
}
