// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/patchbay-cni/patchbay/test/lab/guest"
)

// exitNoResult is the exit code when there is none of the program's.
const exitNoResult = 125

func main() {
	if guest.Inside(os.Args[1:]) {
		if err := guest.Main(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "guest:", err)
			os.Exit(1)
		}
		return
	}
	// go test ends a test that takes too long with SIGQUIT; a closed pipe on standard
	// output must not end this process before it has ended the guest.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt,
		syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGPIPE)
	code, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "kerneltest:", err)
		code = exitNoResult
	}
	os.Exit(code)
}

// run executes the program that args name and returns its exit code.
func run(ctx context.Context, args []string, out io.Writer) (int, error) {
	o, err := parse(args)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return o.execute(ctx, out)
}
