// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// clusterArgument describes the argument of verbs about one Cluster.
const clusterArgument = "the name of one Cluster, such as east"

// exactlyOneArgument rejects any other number of arguments with a description of the one.
func exactlyOneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s: give %s: got %d arguments", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// commandWithYes returns the command as it was called, plus --yes, for the user to run after a dry
// run. It has the named flags and those of kubectl that select the hub and the user. It has no
// other flags, because those may contain credentials.
func commandWithYes(cmd *cobra.Command, args []string, own ...string) string {
	words := append([]string{cmd.CommandPath()}, args...)
	for _, name := range append(own, "kubeconfig", "context", "cluster", "user", "server", "namespace", "as") {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			words = append(words, "--"+name+"="+shellQuote(f.Value.String()))
		}
	}
	return strings.Join(append(words, "--yes"), " ")
}

// shellQuote quotes a value for a shell where it must be quoted.
func shellQuote(value string) string {
	if strings.ContainsAny(value, " \t\n\"'`$&|;<>()*?[]{}!#~\\") {
		return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
	}
	return value
}
