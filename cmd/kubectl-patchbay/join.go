// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-cni/patchbay/placement/hub/invite"
)

// joining is what `cluster join` is asked to do.
type joining struct {
	cluster, hub, token string // several addresses of the hub have commas between them
	ca                  string // base64 of PEM
	proxy, image        string
	tokenAuth, force    bool
}

// newJoin is the verb that installs the agent.
func newJoin(ctx context.Context, a *access) *cobra.Command {
	j := &joining{}
	cmd := &cobra.Command{
		Use:   "join NAME",
		Short: "Install the agent in this cluster and have it join a hub",
		Long: "Installs patchbay-agent in the cluster of the kubeconfig, with what `kubectl patchbay hub token` printed\n" +
			"at the hub. The agent dials the hub; nothing ever dials the agent. It is safe to repeat.",
		Example: "  kubectl --context=east patchbay cluster join east --hub=https://hub.example.com:6443 --join-token=... --ca=...",
		Args:    oneArgument(aCluster),
		RunE: func(cmd *cobra.Command, args []string) error {
			j.cluster = args[0]
			if err := j.validate(); err != nil {
				return err
			}
			c, _, err := a.openPlacement()
			if err != nil {
				return err
			}
			if err := j.install(ctx, c); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "the agent is installed and asks to join as %s\n", j.cluster)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&j.hub, "hub", "", "the hub's address, such as https://hub.example.com:6443; with commas between them several, of which one answers")
	f.StringVar(&j.token, "join-token", "", "the join token")
	f.StringVar(&j.ca, "ca", "", "the hub's certificate authority, base64 of PEM; default: those that the agent's image knows")
	f.StringVar(&j.proxy, "proxy", "", "the proxy on the way to the hub, such as http://user:password@proxy.example:3128")
	f.BoolVar(&j.tokenAuth, "token-auth", false, "the agent has short-lived tokens, not a certificate: for a load balancer on the way that ends TLS")
	f.StringVar(&j.image, "image", "patchbay.local/patchbay-agent:devel", "the agent's image")
	f.BoolVar(&j.force, "force", false, "also where an agent of another cluster or hub is installed")
	return cmd
}

// tokenForm is what a bootstrap token looks like.
var tokenForm = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// validate says what is wrong with the flags, all at once.
func (j *joining) validate() error {
	errs := []error{invite.CheckName(j.cluster)}
	for _, address := range j.addresses() {
		if u, err := url.Parse(address); err != nil || u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("flag --hub: %q is no address such as https://hub.example.com:6443", address))
		}
	}
	if !tokenForm.MatchString(j.token) {
		errs = append(errs, errors.New("flag --join-token: want what `kubectl patchbay hub token` printed, such as abcdef.0123456789abcdef"))
	}
	if _, err := j.decoded(); err != nil {
		errs = append(errs, err)
	}
	if u, err := url.Parse(j.proxy); err != nil || j.proxy != "" && u.Host == "" {
		errs = append(errs, errors.New("flag --proxy: want an address such as http://proxy.example:3128"))
	}
	if j.image == "" {
		errs = append(errs, errors.New("flag --image: want the agent's image"))
	}
	return errors.Join(errs...)
}

// addresses are the hub's, in the order in which they are tried.
func (j *joining) addresses() []string { return strings.Split(j.hub, ",") }
