// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
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
			l, err := lab.Up(ctx, config)
			if err == nil {
				err = l.Step("show Pods on three networks", func() error {
					return demo.Run(ctx, l, l.Examples("demo"), cmd.OutOrStdout())
				})
			}
			if err != nil {
				return fmt.Errorf("%w\nlook closer: bin/lab --name %s logs DIR; end it: bin/lab --name %s down", err, *name, *name)
			}
			fmt.Fprintf(cmd.OutOrStdout(), goOn, *name)
			return nil
		},
	}
	cmd.Flags().IntVar(&config.Nodes, "nodes", 2, "number of nodes")
	return cmd
}

// goOn is the demo's last word.
const goOn = `
The lab %[1]q stays up. Go on with

  bin/lab kubectl get danmeps -o wide                       one line per interface of a Pod
  bin/lab kubectl get clusternetworks                       who has how many addresses
  bin/lab kubectl get nodenetworks -o yaml                  cards and host links of each node
  bin/lab kubectl exec deploy/hello -- ip address           inside a Pod
  bin/lab kubectl scale deploy/hello --replicas 20
  bin/lab exec node-1 -- ip -d link                         the node's own kernel
  bin/lab node kill node-2; bin/lab node start node-2       a power cut
  bin/lab status
  make demo-down                                            end it; nothing is left behind

(with --name %[1]s after bin/lab, when it is not the default)
`
