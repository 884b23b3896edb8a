// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/internal/invite"
	"github.com/patchbay-cni/patchbay/internal/logging"
	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/standalone"
)

// upOptions is what `up` is asked to do.
type upOptions struct {
	options

	config      standalone.Config
	joinCluster string
}

// runUp starts an API server for a hub, and the hub, until ctx ends.
func runUp(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	t, err := parseUp(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if t.version {
		_, err := fmt.Fprintln(stderr, version.String())
		return err
	}
	if _, err := fmt.Fprintln(stdout, "Starting a hub in", t.config.DataDir, "…"); err != nil {
		return err
	}
	return standalone.Run(ctx, t.config, func(ctx context.Context) error {
		// The terminal is for what to do next.
		log, err := t.config.OpenLog("patchbay-hub")
		if err != nil {
			return err
		}
		defer log.Close()
		ctx, flush := logging.NewContext(ctx, t.debug, log)
		defer flush()
		return runUntilStopped(ctx, func(ctx context.Context) error { return t.installAndRun(ctx, stdout) })
	})
}

// parseUp reads the flags of up.
func parseUp(args []string, stderr io.Writer) (*upOptions, error) {
	t := &upOptions{}
	c := &t.config
	f := flag.NewFlagSet("patchbay-hub up", flag.ContinueOnError)
	f.SetOutput(stderr)
	t.addFlags(f)
	f.StringVar(&c.BinDir, "bin-dir", ".", "`folder` of kube-apiserver and kube-controller-manager; etcd is there or in the PATH")
	f.StringVar(&c.DataDir, "data-dir", "patchbay-hub", "`folder` for all that is stored; it is made")
	f.IntVar(&c.Port, "port", 6443, "`port` of the API server")
	f.StringVar(&t.joinCluster, "cluster", "east", "`name` of the cluster that the printed command is to join; more by `kubectl patchbay hub token`")
	address := f.String("address", "127.0.0.1", "IP `address` that agents dial the hub at")
	listen := f.String("listen", "", "IP `address` that the API server listens on, if it is not --address: 0.0.0.0 in a container")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if c.Address = net.ParseIP(*address); c.Address == nil {
		return nil, fmt.Errorf("flag --address: %q is no IP address: want one that agents dial the hub at, such as 192.0.2.10", *address)
	}
	if c.Listen = net.ParseIP(*listen); c.Listen == nil && *listen != "" {
		return nil, fmt.Errorf("flag --listen: %q is no IP address: want one of this machine, or 0.0.0.0 for all", *listen)
	}
	if err := invite.ValidateClusterName(t.joinCluster); err != nil {
		return nil, fmt.Errorf("flag --cluster: %w", err)
	}
	var err error
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return nil, fmt.Errorf("flag --data-dir: %w", err)
	}
	if err := t.validate(f.NArg()); err != nil || t.version {
		return t, err
	}
	return t, c.Validate()
}

// installAndRun makes the API server a hub's and runs the hub.
func (t *upOptions) installAndRun(ctx context.Context, stdout io.Writer) error {
	admin, err := clientcmd.BuildConfigFromFlags("", t.config.KubeconfigPath())
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	if err := standalone.Install(ctx, admin); err != nil {
		return err
	}
	if err := t.printNextSteps(ctx, admin, stdout); err != nil {
		return err
	}
	cfg, err := t.config.HubRESTConfig()
	if err != nil {
		return err
	}
	return runHub(ctx, cfg, &t.options)
}

// printNextSteps says what to do next, in commands that can be pasted.
func (t *upOptions) printNextSteps(ctx context.Context, admin *rest.Config, out io.Writer) error {
	c, err := client.New(admin, client.Options{})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	_, err = fmt.Fprintf(out, "The hub is up. Ctrl-C ends it, and the same command brings it back as it was; logs are in %s.\n\n"+
		"# kubectl talks to the hub with:\nexport KUBECONFIG=%s\n\n", t.config.DataDir, t.config.KubeconfigPath())
	if err != nil {
		return err
	}
	i := invite.Invitation{Cluster: t.joinCluster, Hub: admin.Host, CA: admin.CAData, ExpiresAt: time.Now().Add(joinTokenTTL)}
	return i.Issue(ctx, c, "patchbay-hub-up", out)
}

// joinTokenTTL is how long the join token lasts that is printed.
const joinTokenTTL = time.Hour

// Install applies what a hub's API server needs, kinds, roles and policies, and waits until it
// serves the kinds.
func Install(ctx context.Context, cfg *rest.Config) error { return standalone.Install(ctx, cfg) }
