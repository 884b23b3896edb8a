// SPDX-License-Identifier: Apache-2.0

// Command demo shows placement on this machine: a hub and three clusters, an unchanged
// Deployment with its Service, divided, summed up, and moved by one annotation. It ends
// by itself and leaves nothing behind; with --stay it waits for Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

func main() {
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run starts everything, shows it, and ends it.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	stay := flags.Bool("stay", false, "leave hub and clusters running until Ctrl-C")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	begun := time.Now()
	fmt.Fprintln(out, "Starting a hub and the clusters east, west and south on this machine: API servers, controllers and\n"+
		"schedulers are real, nodes and Pods are played by KWOK …")
	clusters := []string{"east", "west", "south"}
	b, err := bed.Launch(ctx, bed.Config{Clusters: clusters})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close(context.WithoutCancel(ctx))) }()
	if err := join(ctx, b, clusters); err != nil {
		return err
	}
	s := &demoRun{bed: b, out: out}
	if err := s.run(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nThat took %s.\n", time.Since(begun).Round(time.Second))
	if *stay {
		fmt.Fprintf(out, "\nAll of it runs until Ctrl-C. In another terminal (kubectl is in bin/kubernetes, and by\n"+
			"PATH=$PATH:$PWD/bin:$PWD/bin/kubernetes it knows kubectl patchbay, too):\n\nexport KUBECONFIG=%s\n", b.Hub.ControlPlane.AdminKubeconfig())
		for _, name := range clusters {
			fmt.Fprintf(out, "# in %s: export KUBECONFIG=%s\n", name, b.Clusters[name].ControlPlane.AdminKubeconfig())
		}
		<-ctx.Done()
	} else {
		fmt.Fprintln(out, "Everything has ended. To have it stay: make demo-placement KEEP=1")
	}
	return nil
}

// join starts the hub's program and the agents.
func join(ctx context.Context, b *bed.Bed, clusters []string) error {
	if _, err := b.StartHub(ctx); err != nil {
		return err
	}
	var g errgroup.Group
	for _, name := range clusters {
		g.Go(func() error {
			if err := b.CreateCluster(ctx, name, v1alpha1.ClusterSpec{}); err != nil {
				return err
			}
			_, err := b.StartAgent(ctx, name)
			return err
		})
	}
	return g.Wait()
}
