// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/patchbay-cni/patchbay/logging"
	"github.com/patchbay-cni/patchbay/placement/hub/standalone"
)

// up starts an API server for a hub, and the hub, until ctx ends.
func up(ctx context.Context, args []string, stderr io.Writer) error {
	o, c, err := parseUp(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, flush := logging.Into(ctx, o.debug, stderr)
	defer flush()
	return standalone.Run(ctx, c, func(ctx context.Context) error {
		cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
		if err != nil {
			return fmt.Errorf("read kubeconfig: %w", err)
		}
		if err := standalone.Install(ctx, cfg); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(stderr, "The hub is up:\n\n  export KUBECONFIG=%s\n\n", c.Kubeconfig()); err != nil {
			return err
		}
		return serve(ctx, cfg, o)
	})
}

// parseUp reads the flags of up.
func parseUp(args []string, stderr io.Writer) (*options, standalone.Config, error) {
	o, c := &options{}, standalone.Config{}
	f := flag.NewFlagSet("patchbay-hub up", flag.ContinueOnError)
	f.SetOutput(stderr)
	o.register(f)
	f.StringVar(&c.BinDir, "bin-dir", ".", "`folder` of kube-apiserver and kube-controller-manager; etcd is there or in the PATH")
	f.StringVar(&c.DataDir, "data-dir", "patchbay-hub", "`folder` for all that is stored; it is made")
	f.IntVar(&c.Port, "port", 6443, "`port` of the API server")
	address := f.String("address", "127.0.0.1", "`address` that the API server listens on, and agents dial")
	if err := f.Parse(args); err != nil {
		return nil, c, err
	}
	if c.Address = net.ParseIP(*address); c.Address == nil {
		return nil, c, fmt.Errorf("flag --address: %q is no IP address", *address)
	}
	var err error
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return nil, c, fmt.Errorf("flag --data-dir: %w", err)
	}
	return o, c, o.validate(f.NArg())
}
