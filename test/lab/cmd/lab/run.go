// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/patchbay-cni/patchbay/test/lab"
	"github.com/patchbay-cni/patchbay/test/lab/remote"
)

func newKubectl(name *string) *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl ARGUMENTS...",
		Short:              "Run kubectl as the cluster's administrator (--name comes before kubectl)",
		DisableFlagParsing: true, // they are kubectl's
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Open(*name)
			if err != nil {
				return err
			}
			// An interrupt at the terminal reaches kubectl by itself.
			kubectl, err := l.KubectlCommand(cmd.Context(), args...)
			if err != nil {
				return err
			}
			kubectl.Stdin, kubectl.Stdout, kubectl.Stderr = os.Stdin, os.Stdout, os.Stderr
			return exitCode(kubectl.Run())
		},
	}
}

// exitCode turns the end of a child into this program's.
func exitCode(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exitError(exit.ExitCode())
	}
	return err
}

func newExec(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "exec NODE -- COMMAND...",
		Short: "Run a command in a node's kernel",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Open(*name)
			if err != nil {
				return err
			}
			code, err := l.Run(cmd.Context(), args[0], remote.Request{Args: args[1:]},
				remote.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
			if errors.Is(err, remote.ErrNotStarted) {
				cmd.PrintErrln("lab:", err)
				return exitError(127) // as a shell does
			}
			if err != nil {
				return err
			}
			if code != 0 {
				return exitError(code)
			}
			return nil
		},
	}
}
