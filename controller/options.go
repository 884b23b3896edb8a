// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

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

// parseOptions reads the flags; the message of a wrong one goes to stderr.
func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("patchbay-controller", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; the Pod's service account when empty")
	f.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "`namespace` of the controller's own Lease (environment POD_NAMESPACE)")
	f.StringVar(&o.healthAddress, "http-address", "127.0.0.1:9641", "`address` for /healthz and /readyz")
	o.secureMetrics.AddFlags(f)
	f.StringVar(&o.webhookAddress, "webhook-address", "", "`address` at which the API server asks about networks and Pods; empty for no admission")
	f.StringVar(&o.namingScheme, "naming-scheme", "", "`name` of the scheme of interface names, as in the CNI configuration: empty or legacy")
	f.DurationVar(&o.nodeGrace, "node-grace", 15*time.Minute,
		"how long a Node must be gone before its addresses are freed; at least "+minNodeGrace.String())
	f.Var(&o.clusterRanges, "cluster-ranges",
		"`subnets` of the Pods' first interfaces that no Node's podCIDRs name, with commas, such as those of Calico's IPPools")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "act only while holding the Lease; false is for a single replica")
	f.BoolVar(&o.debug, "debug", false, "log more")
	f.BoolVar(&o.version, "version", false, "print the version")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	return o, o.validate(f.NArg())
}

// prefixes is a flag of subnets with commas between them.
type prefixes []netip.Prefix

// String implements flag.Value.
func (p *prefixes) String() string {
	texts := make([]string, len(*p))
	for i, prefix := range *p {
		texts[i] = prefix.String()
	}
	return strings.Join(texts, ",")
}

// Set implements flag.Value.
func (p *prefixes) Set(text string) error {
	*p = nil
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(part)
		if err != nil || prefix.Addr().Is4In6() {
			return fmt.Errorf("%q is no subnet, such as 10.244.0.0/16", part)
		}
		*p = append(*p, prefix.Masked())
	}
	return nil
}

// validate refuses what the controller must not start with.
func (o *options) validate(rest int) error {
	switch {
	case rest > 0:
		return errors.New("arguments after the flags: want none")
	case o.version:
		return nil
	case o.leaderElect && o.namespace == "":
		return errors.New("flag --namespace: the controller must know where its Lease is: give the namespace that it runs in")
	case o.webhookAddress != "" && o.namespace == "":
		return errors.New("flag --namespace: the controller must know where the Secret of its certificates is: give the namespace that it runs in")
	case o.namingScheme != "" && o.namingScheme != network.NamingSchemeLegacy:
		return fmt.Errorf("flag --naming-scheme: got %q, want %q or nothing", o.namingScheme, network.NamingSchemeLegacy)
	case o.nodeGrace < minNodeGrace:
		return fmt.Errorf("flag --node-grace: %s is too short, want at least %s", o.nodeGrace, minNodeGrace)
	case o.webhookAddress == "":
		return nil
	}
	_, _, err := parseWebhookAddress(o.webhookAddress)
	return err
}

// minNodeGrace keeps a slip of the finger from freeing the addresses of a Node that
// is being re-registered.
const minNodeGrace = time.Minute

// parseWebhookAddress reads the flag. Port 0 would be another one in each replica, and the
// Service has one.
func parseWebhookAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("flag --webhook-address: %w", err)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return "", 0, fmt.Errorf("flag --webhook-address: port is %q, want 1 to 65535", text)
	}
	return host, int(number), nil
}
