// SPDX-License-Identifier: Apache-2.0

// Command warmpool measures, without a cluster, what a node's warm pool saves and
// costs: a claim that the warm pool serves beside one that needs a write, and the bytes of
// status that many nodes' warm pools take in many networks.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "warmpool:", err)
		os.Exit(1)
	}
}

// options are the size of the benchmark.
type options struct {
	runs, claims    int
	networks, nodes int
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("warmpool", flag.ContinueOnError)
	flags.IntVar(&o.runs, "runs", 7, "runs of each contender")
	flags.IntVar(&o.claims, "claims", 2048, "claims in a run")
	flags.IntVar(&o.networks, "networks", 200, "networks whose status is measured")
	flags.IntVar(&o.nodes, "nodes", 50, "nodes that have addresses of each")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("parse flags: %w", err)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	speed, err := compareClaims(ctx, o)
	if err != nil {
		return err
	}
	if err := speed.Write(out); err != nil {
		return err
	}
	fmt.Fprintln(out)
	sizes, err := compareSizes(ctx, o)
	if err != nil {
		return err
	}
	return sizes.Write(out)
}
