// SPDX-License-Identifier: Apache-2.0

// Command webhook measures what the webhook of Pods adds to the creation of Pods at a fixed rate. The
// controller is a process of its own with its own account, and the API server calls it by the webhook
// configurations of deployments/. The controls, in the same run and in turns, are the same Pods without
// annotations, and the same Pods while the webhook's configuration is removed. No scheduler and no
// kubelet handle the Pods.
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

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/services/scene"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // client-go would log each request that fails
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}

// options has the size of the benchmark.
type options struct {
	runs, rate, probes, networks, namespaces int
	duration                                 time.Duration
	profile                                  string
}

// parse parses the flags.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("webhook", flag.ContinueOnError)
	flags.IntVar(&o.runs, "runs", 3, "runs of each load")
	flags.IntVar(&o.rate, "rate", 200, "Pods created in a second")
	flags.DurationVar(&o.duration, "duration", 20*time.Second, "how long Pods are created in each run")
	flags.IntVar(&o.probes, "probes", 20, "calls of the webhook in a second by a client of this program, beside the API server's")
	flags.IntVar(&o.networks, "networks", 100, "networks in the cluster")
	flags.IntVar(&o.namespaces, "namespaces", 8, "namespaces with Pods")
	flags.StringVar(&o.profile, "profile", "", "`file` for a processor profile of the controller during the first run of annotated Pods")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("parse flags: %w", err)
	}
	if min(o.runs, o.rate, o.probes, o.networks, o.namespaces, int(o.duration/time.Second)) < 1 {
		return o, errors.New("parse flags: each number must be at least 1, and the duration at least 1s")
	}
	return o, nil
}

// run runs the benchmark and prints its tables.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "webhook")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, err := scene.Build(ctx, dir)
	if err != nil {
		return err
	}
	// The API server resolves the webhook's Service by itself, as a kubeadm cluster's does.
	env, err := apitest.LaunchWithFlags(ctx, "--enable-aggregator-routing=false")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Close(context.WithoutCancel(ctx))) }()
	c, err := newCluster(ctx, env, o, program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.controller.Kill(context.WithoutCancel(ctx))) }()
	samples, err := c.measureAll(ctx, out)
	if err != nil {
		return err
	}
	return report(out, o, samples)
}

// load is a kind of Pods, and whether the API server has the webhook's configuration.
type load struct {
	name                  string
	annotated, configured bool
	// callsOnly is true if no Pods are created: this program calls the webhook as often instead.
	callsOnly bool
}

// loads returns the load of interest, its controls, and the webhook without the API server.
func loads() []load {
	return []load{
		{name: "annotated", annotated: true, configured: true},
		{name: "not annotated", configured: true},
		{name: "annotated, no webhook", annotated: true},
		{name: "no Pods, calls at this rate", configured: true, callsOnly: true},
	}
}
