// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/patchbay-cni/patchbay/test/lab"
)

// exitError is the error of a command whose exit code is passed on.
type exitError int

func (c exitError) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string) int {
	root := newRoot() //nolint:contextcheck // cobra gives the context to each command
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var code exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	default:
		fmt.Fprintln(os.Stderr, "lab:", err)
		return 1
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "lab",
		Short:         "A Kubernetes cluster with bare-metal nodes on this machine",
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
		// A flag before kubectl is the lab's, whatever follows is kubectl's.
		TraverseChildren: true,
	}
	name := root.PersistentFlags().String("name", lab.DefaultName, "which lab")
	root.AddCommand(
		newUp(name), newDown(name), newStatus(name), newDemo(name),
		newKubectl(name), newExec(name),
		newNode(name), newRestart(name), newLogs(name),
	)
	return root
}

// codeOf turns the end of a child into this program's.
func codeOf(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exitError(exit.ExitCode())
	}
	return err
}
