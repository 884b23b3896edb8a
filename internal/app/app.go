// SPDX-License-Identifier: Apache-2.0

// Package app is what all programs have in common: start and stop, credentials of the API server,
// caches and health checks.
package app

import (
	"context"
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

// Main runs a program until it ends, or until SIGINT or SIGTERM. It prints an error with the prefix
// to standard error, and returns the exit code.
func Main(prefix string, run Run) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", prefix, err)
		return 1
	}
	return 0
}

// RESTConfig returns the address and credentials in a kubeconfig file, or those of the Pod's
// service account if kubeconfig is empty.
func RESTConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}
