// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/internal/invite"
	"github.com/patchbay-cni/patchbay/internal/logging"
	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/standalone"
)

// upOptions are the flags of `patchbay-hub up`.
type upOptions struct {
	options

	config      standalone.Config
	joinCluster string
}

// runUp runs an API server for a hub, and the hub, until ctx ends.
func runUp(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	t, err := parseUp(args, stderr)
	if errors.Is(err, pflag.ErrHelp) {
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
		// The terminal shows the next steps; logs go to a file.
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

// parseUp reads the flags of `patchbay-hub up`.
func parseUp(args []string, stderr io.Writer) (*upOptions, error) {
	t := &upOptions{}
	c := &t.config
	f := pflag.NewFlagSet("patchbay-hub up", pflag.ContinueOnError)
	f.SetOutput(stderr)
	t.addFlags(f)
	f.StringVar(&c.BinDir, "bin-dir", ".", "`folder` of kube-apiserver and kube-controller-manager; etcd may be there or in the PATH")
	f.StringVar(&c.DataDir, "data-dir", "patchbay-hub", "`folder` for all stored data; created if it does not exist")
	f.IntVar(&c.Port, "port", 6443, "`port` of the API server")
	f.StringVar(&t.joinCluster, "cluster", "east", "`name` of the cluster in the printed join command; `kubectl patchbay hub token` prints commands for more clusters")
	address := f.String("address", "127.0.0.1", "IP `address` at which agents reach the hub")
	listen := f.String("listen", "", "IP `address` on which the API server listens, if not --address; 0.0.0.0 in a container")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if c.Address = net.ParseIP(*address); c.Address == nil {
		return nil, fmt.Errorf("flag --address: must be an IP address at which agents reach the hub, such as 192.0.2.10: got %q", *address)
	}
	if c.Listen = net.ParseIP(*listen); c.Listen == nil && *listen != "" {
		return nil, fmt.Errorf("flag --listen: must be an IP address of this machine, or 0.0.0.0 for all: got %q", *listen)
	}
	if err := invite.ValidateClusterName(t.joinCluster); err != nil {
		return nil, fmt.Errorf("flag --cluster: %w", err)
	}
	var err error
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return nil, fmt.Errorf("flag --data-dir: %w", err)
	}
	if err := t.validate(f.Args()); err != nil || t.version {
		return t, err
	}
	return t, c.Validate()
}

// installAndRun installs the hub's manifests in the API server, and runs the hub.
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
	// The API server is on this machine, and gets the chosen port by the registration.
	t.debugAddress, t.debugHost = "127.0.0.1:0", "127.0.0.1"
	return runHub(ctx, cfg, &t.options)
}

// printNextSteps prints the next commands, which the user can paste.
func (t *upOptions) printNextSteps(ctx context.Context, admin *rest.Config, out io.Writer) error {
	c, err := client.New(admin, client.Options{})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	_, err = fmt.Fprintf(out, "The hub is up. Ctrl-C stops it, and the same command starts it again with its data; logs are in %s.\n\n"+
		"# To use the hub with kubectl:\nexport KUBECONFIG=%s\n\n", t.config.DataDir, t.config.KubeconfigPath())
	if err != nil {
		return err
	}
	i := invite.Invitation{Cluster: t.joinCluster, Hub: admin.Host, CA: admin.CAData, ExpiresAt: time.Now().Add(joinTokenTTL)}
	return i.Issue(ctx, c, "patchbay-hub-up", out)
}

// joinTokenTTL is the lifetime of the printed join token.
const joinTokenTTL = time.Hour

// Install applies the kinds, roles and policies of a hub, and waits until the API server serves the kinds.
func Install(ctx context.Context, cfg *rest.Config) error { return standalone.Install(ctx, cfg) }
