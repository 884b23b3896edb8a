// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/install"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/internal/securemetrics"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// options are the daemon's flags.
type options struct {
	node, kubeconfig         string
	namespace, daemonSet     string
	socket, pending, journal string
	hostRoot                 string
	cniBin, cniConf, plugin  string
	cniVersion, namingScheme string
	healthAddress            string
	secureMetrics            securemetrics.Options
	vtepRanges               netwatcher.VTEPRanges
	warmPoolLimit            int
	cooldown                 time.Duration
	releaseTimeout           time.Duration
	install, debug, version  bool
}

// parseOptions reads the flags; the message of a wrong one goes to stderr.
func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{releaseTimeout: defaultReleaseTimeout, vtepRanges: netwatcher.VTEPRanges{}}
	f := flag.NewFlagSet("patchbayd", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.node, "node-name", os.Getenv("NODE_NAME"), "name of this Node `object` (environment NODE_NAME)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; the Pod's service account when empty")
	f.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "`namespace` of the daemon's own DaemonSet (environment POD_NAMESPACE)")
	f.StringVar(&o.daemonSet, "daemonset", "patchbayd", "`name` of the daemon's own DaemonSet: when it is deleted, the plugin is uninstalled")
	f.StringVar(&o.socket, "socket", wire.DefaultSocket, "unix socket `path` for the plugin")
	f.StringVar(&o.pending, "pending", wire.DefaultPendingDir, "`folder` where the plugin leaves DELs while no daemon is there")
	f.StringVar(&o.journal, "journal", journal.DefaultPath, "journal `file`")
	f.StringVar(&o.hostRoot, "host-root", "/", "`folder` where the node's root file system is: other CNI plugins run in it")
	f.StringVar(&o.cniBin, "cni-bin-dir", "/opt/cni/bin", "`folder` that the plugin is installed to")
	f.StringVar(&o.cniConf, "cni-conf-dir", "/etc/cni/net.d", "`folder` that the plugin's configuration is installed to")
	f.StringVar(&o.plugin, "plugin", "/patchbay", "`file` of the plugin to install")
	f.StringVar(&o.cniVersion, "cni-version", install.DefaultCNIVersion, "`version` of CNI in the configuration")
	f.StringVar(&o.namingScheme, "naming-scheme", "", "how interfaces are named: empty, or legacy as DANM has it")
	f.StringVar(&o.healthAddress, "http-address", "127.0.0.1:9640", "`address` for /healthz and /readyz")
	o.secureMetrics.AddFlags(f)
	f.Func("vtep-ranges", "`NIC=CIDR[,CIDR...]` where other nodes' VTEPs on a NIC are; may be repeated. On a NIC without, they are in the subnets that this node has there", o.addVTEPRanges)
	f.IntVar(&o.warmPoolLimit, "warm-pool-limit", 64, "most `addresses` that this node keeps ready per network and family: 0 for none, so that each Pod costs a write")
	f.DurationVar(&o.cooldown, "address-cooldown", 10*time.Second, "`time` that a dynamic address rests after a Pod had it, before this node uses it again or gives it back")
	f.BoolVar(&o.install, "install", true, "install the plugin and its configuration once the daemon is ready")
	f.BoolVar(&o.debug, "debug", false, "log more")
	f.BoolVar(&o.version, "version", false, "print the version")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, errors.New("arguments after the flags: want none")
	}
	if o.node == "" && !o.version {
		return nil, errors.New("flag --node-name: give the name of this Node object (environment NODE_NAME)")
	}
	if o.warmPoolLimit < 0 || o.cooldown < 0 {
		return nil, fmt.Errorf("flags --warm-pool-limit=%d and --address-cooldown=%s: neither may be negative", o.warmPoolLimit, o.cooldown)
	}
	return o, nil
}

// addVTEPRanges reads one --vtep-ranges.
func (o *options) addVTEPRanges(text string) error {
	nic, list, ok := strings.Cut(text, "=")
	if !ok || nic == "" {
		return fmt.Errorf("%q: want NIC=CIDR[,CIDR...], such as ens5=10.50.0.0/16", text)
	}
	for cidr := range strings.SplitSeq(list, ",") {
		p, err := netip.ParsePrefix(cidr)
		if err != nil || p != p.Masked() {
			return fmt.Errorf("%q of NIC %s: want a subnet without host bits, such as 10.50.0.0/16", cidr, nic)
		}
		o.vtepRanges[nic] = append(o.vtepRanges[nic], p)
	}
	return nil
}
