// SPDX-License-Identifier: Apache-2.0

// Command lab runs a Kubernetes cluster with bare-metal nodes on one machine; see
// package lab. "lab help" lists its commands.
//
// It is also the init of the nodes that it boots.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/patchbay-cni/patchbay/internal/text"
	"github.com/patchbay-cni/patchbay/test/lab"
	"github.com/patchbay-cni/patchbay/test/lab/guest"
)

func main() {
	if guest.Inside(os.Args[1:]) {
		if err := guest.Main(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "guest:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string) int {
	root := newRoot()
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
		Args:          rejectUnknown,
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

// errUnknownCommand is about an argument where a command must be.
var errUnknownCommand = errors.New("unknown command")

// rejectUnknown rejects the arguments of a command that only has commands: they are not among these.
func rejectUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	advice := "see " + cmd.CommandPath() + " --help"
	if nearest := text.Nearest(args[0], names); nearest != "" {
		advice = "did you mean " + nearest + "?"
	}
	return fmt.Errorf("%w %q for %q: %s", errUnknownCommand, args[0], cmd.CommandPath(), advice)
}

// exitError is the error of a command whose exit code is passed on.
type exitError int

func (c exitError) Error() string { return fmt.Sprintf("exit code %d", int(c)) }
