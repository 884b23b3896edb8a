// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// clusterArgument is what verbs about clusters of a hub want.
const clusterArgument = "the name of one Cluster, such as east"

// exactlyOneArgument wants what, and nothing else.
func exactlyOneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s: give %s: got %d arguments", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// commandWithYes is the command as it was called, with --yes: what a dry run prints for the user to run.
// Of the flags it has its own and those of kubectl that say which hub is meant, and as whom; the
// others may have credentials in them.
func commandWithYes(cmd *cobra.Command, args []string, own ...string) string {
	words := append([]string{cmd.CommandPath()}, args...)
	for _, name := range append(own, "kubeconfig", "context", "cluster", "user", "server", "namespace", "as") {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			words = append(words, "--"+name+"="+shellQuote(f.Value.String()))
		}
	}
	return strings.Join(append(words, "--yes"), " ")
}

// shellQuote is a value as a shell takes it.
func shellQuote(value string) string {
	if strings.ContainsAny(value, " \t\n\"'`$&|;<>()*?[]{}!#~\\") {
		return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
	}
	return value
}
