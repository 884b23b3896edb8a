// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-cni/patchbay/test/lab"
)

func newUp(name *string) *cobra.Command {
	config := lab.Config{}
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a lab, or complete the one that is there",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			config.Name, config.Progress = *name, cmd.OutOrStdout()
			_, err := lab.Up(ctx, config)
			return err
		},
	}
	cmd.Flags().IntVar(&config.Nodes, "nodes", 2, "number of nodes")
	cmd.Flags().StringSliceVar(&config.QEMU, "qemu", nil, "nodes in QEMU, with SR-IOV functions, such as node-2")
	cmd.Flags().StringVar((*string)(&config.Runtime), "runtime", "", "container runtime of all nodes: containerd of the machine's package (the default for new nodes), or containerd-2 (make containerd-2)")
	cmd.Flags().BoolVar(&config.Install, "install", true, "install Patchbay from deployments/")
	cmd.Flags().IntVar(&config.Memory, "memory", 0, "memory of each node in MiB (default 1536)")
	cmd.Flags().DurationVar(&timeout, "timeout", 15*time.Minute, "time for all of it")
	return cmd
}

func newDown(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End a lab and remove everything of it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			const patience = time.Minute
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			return lab.Down(ctx, *name)
		},
	}
}

func newStatus(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say how each part is; exit code 1 when one is not well",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.Open(*name)
			if err != nil {
				return err
			}
			all, err := l.Status(cmd.Context())
			if err != nil {
				return err
			}
			good := true
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, h := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\n", h.Part, h.State, h.Detail)
				good = good && h.OK
			}
			if err := w.Flush(); err != nil {
				return fmt.Errorf("print status: %w", err)
			}
			if !good {
				return exitError(1)
			}
			return nil
		},
	}
}
