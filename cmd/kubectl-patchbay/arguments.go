// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// aCluster is what verbs about clusters of a hub want.
const aCluster = "the name of one Cluster, such as east"

// oneArgument wants what, and nothing else.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s: give %s: got %d arguments", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}
