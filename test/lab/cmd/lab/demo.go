// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-cni/patchbay/test/lab"
	"github.com/patchbay-cni/patchbay/test/lab/demo"
)

func newDemo(name *string) *cobra.Command {
	config := lab.Config{Install: true}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Start a lab with Patchbay and show Pods on three networks",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			const patience = 6 * time.Minute
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			config.Name, config.Progress = *name, cmd.OutOrStdout()
			_, err := lab.Open(*name)
			isNew := errors.Is(err, lab.ErrNotFound)
			if err := runDemo(ctx, config, cmd.OutOrStdout()); err != nil {
				return errors.Join(err, cleanUp(ctx, *name, isNew, cmd.OutOrStdout()))
			}
			return printNextSteps(cmd.OutOrStdout(), *name)
		},
	}
	cmd.Flags().IntVar(&config.Nodes, "nodes", 2, "number of nodes")
	return cmd
}

// runDemo starts the lab, or completes the one that is there, and shows the demo in it.
func runDemo(ctx context.Context, config lab.Config, out io.Writer) error {
	l, err := lab.Up(ctx, config)
	if err != nil {
		return err
	}
	return l.Step("show Pods on three networks", func() error {
		return demo.Run(ctx, l, l.Examples("demo"), out)
	})
}

// cleanUp collects the logs of a demo that failed and ends the lab, so that nothing is left
// running. A lab that ran before the demo stays. Who interrupts the demo asks for no logs.
func cleanUp(ctx context.Context, name string, isNew bool, out io.Writer) error {
	const patience = 3 * time.Minute
	interrupted := errors.Is(ctx.Err(), context.Canceled)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	var failed error
	if l, err := lab.Open(name); err == nil && !interrupted {
		var dir string
		if dir, failed = os.MkdirTemp("", "lab-"+name+"-logs-"); failed == nil {
			fmt.Fprintln(out, "failed; all logs are collected in", dir)
			failed = l.Logs(ctx, dir)
		}
	}
	if !isNew {
		fmt.Fprintf(out, "the lab %q ran before the demo, so it still does; end it: %s down\n", name, lab.CommandLine(name))
		return failed
	}
	fmt.Fprintf(out, "ending the lab %q\n", name)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return errors.Join(failed, lab.Down(ending, name))
}

// printNextSteps prints commands to try when the demo has succeeded.
func printNextSteps(out io.Writer, name string) error {
	command := lab.CommandLine(name)
	fmt.Fprintf(out, "\nThe lab %q stays up. Go on with\n\n", name)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, step := range []struct{ command, about string }{
		{"kubectl get danmeps -o wide", "one line per interface of a Pod"},
		{"kubectl get clusternetworks", "the networks, with addresses in use and free"},
		{"kubectl get nodenetworks -o yaml", "NICs and host links of each node"},
		{"kubectl exec deploy/hello -- ip address", "inside a Pod"},
		{"kubectl scale deploy/hello --replicas 20", "more Pods"},
		{"exec node-1 -- ip -d link", "the node's own kernel"},
		{"node kill node-2", "a power cut"},
		{"node start node-2", "switch it on again"},
		{"status", "the state of each part"},
		{"down", "end it; nothing is left behind"},
	} {
		fmt.Fprintf(w, "  %s %s\t%s\n", command, step.command, step.about)
	}
	return w.Flush()
}
