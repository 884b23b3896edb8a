// SPDX-License-Identifier: Apache-2.0

// Package app is what all programs have in common: start and stop, credentials of the API server,
// caches and health checks.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Run is a program. It returns nil when ctx ends.
type Run func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// Main runs a program until it ends, or until SIGINT or SIGTERM. A second signal ends a program that does
// not return after the first. Main prints an error with the prefix to standard error, and returns the exit code.
func Main(prefix string, run Run) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err == nil {
		return 0
	}
	withCode, ok := errors.AsType[*exitError](err)
	if !ok || !withCode.printed {
		fmt.Fprintf(os.Stderr, "%s: %v\n", prefix, err)
	}
	if ok {
		return withCode.code
	}
	return 1
}

// exitError is an error with an exit code of its own.
type exitError struct {
	error

	code    int
	printed bool
}

func (e *exitError) Unwrap() error { return e.error }

// WithExitCode returns an error for which Main returns another exit code than 1.
func WithExitCode(err error, code int) error { return &exitError{error: err, code: code} }

// RESTConfig returns the address and credentials in a kubeconfig file, or those of the Pod's
// service account if kubeconfig is empty.
func RESTConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// Exited returns an error for which Main returns an exit code and prints nothing: a program that has run in place of this
// one has printed the reason.
func Exited(code int) error {
	return &exitError{error: fmt.Errorf("exit code %d", code), code: code, printed: true}
}
