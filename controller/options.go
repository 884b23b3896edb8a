// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/securemetrics"
)

// options are the controller's flags.
type options struct {
	kubeconfig, namespace         string
	healthAddress, webhookAddress string
	secureMetrics                 securemetrics.Options
	namingScheme                  string
	nodeGrace                     time.Duration
	clusterRanges                 prefixes
	leaderElect, debug, version   bool
}

// parseOptions reads the flags. It prints the help that --help asks for to stderr.
func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := pflag.NewFlagSet("patchbay-controller", pflag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; the Pod's service account when empty")
	f.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "`namespace` of the controller's own Lease (environment POD_NAMESPACE)")
	f.StringVar(&o.healthAddress, "health-address", "127.0.0.1:9641", "`address` that serves /healthz and /readyz")
	o.secureMetrics.AddFlags(f)
	f.StringVar(&o.webhookAddress, "webhook-address", "", "`address` that serves the admission webhooks for the API server; no admission webhooks when empty")
	f.StringVar(&o.namingScheme, "naming-scheme", "", "`scheme` of interface names, as in the CNI configuration: empty or legacy")
	f.DurationVar(&o.nodeGrace, "deleted-node-grace-period", 15*time.Minute,
		"`duration` after a Node's deletion before its addresses are released; at least "+minNodeGrace.String())
	f.Var(&o.clusterRanges, "cluster-ranges",
		"comma-separated `subnets` of the Pods' first interfaces that are not in a Node's podCIDRs, such as those of Calico's IPPools")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "act only while this replica holds the Lease; set false only for a single replica")
	f.BoolVar(&o.debug, "debug", false, "log debug messages too")
	f.BoolVar(&o.version, "version", false, "print the version and exit")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	return o, o.validate(f.Args())
}

// prefixes is the value of a flag: comma-separated subnets.
type prefixes []netip.Prefix

// String implements pflag.Value.
func (p *prefixes) String() string {
	texts := make([]string, len(*p))
	for i, prefix := range *p {
		texts[i] = prefix.String()
	}
	return strings.Join(texts, ",")
}

// Set implements pflag.Value.
func (p *prefixes) Set(text string) error {
	*p = nil
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(part)
		if err != nil || prefix.Addr().Is4In6() {
			return fmt.Errorf("%q: must be a subnet, such as 10.244.0.0/16", part)
		}
		*p = append(*p, prefix.Masked())
	}
	return nil
}

// Type implements pflag.Value.
func (*prefixes) Type() string { return "subnets" }

// validate rejects options that the controller must not start with. The arguments are those
// that are no flags.
func (o *options) validate(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("arguments: must be none besides flags: got %q", args)
	case o.version:
		return nil
	case o.leaderElect && o.namespace == "":
		return errors.New("flag --namespace: must not be empty with --leader-elect, for the Lease: give the namespace that the controller runs in")
	case o.webhookAddress != "" && o.namespace == "":
		return errors.New("flag --namespace: must not be empty with --webhook-address, for the Secret of the certificates: give the namespace that the controller runs in")
	case o.namingScheme != "" && o.namingScheme != network.NamingSchemeLegacy:
		return fmt.Errorf("flag --naming-scheme: must be %q or empty: got %q", network.NamingSchemeLegacy, o.namingScheme)
	case o.nodeGrace < minNodeGrace:
		return fmt.Errorf("flag --deleted-node-grace-period: must be at least %s: got %s", minNodeGrace, o.nodeGrace)
	case o.webhookAddress == "":
		return nil
	}
	_, _, err := parseWebhookAddress(o.webhookAddress)
	return err
}

// minNodeGrace prevents a typing error from releasing the addresses of a Node that is
// deleted and registered again.
const minNodeGrace = time.Minute

// parseWebhookAddress splits the value of --webhook-address. Port 0 is rejected: it would be a
// different port in each replica, and the Service has one port.
func parseWebhookAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("flag --webhook-address: %w", err)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return "", 0, fmt.Errorf("flag --webhook-address: port must be 1 to 65535: got %q", text)
	}
	return host, int(number), nil
}
