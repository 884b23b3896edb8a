// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/install"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/internal/securemetrics"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// Folders of CNI that most container runtimes read.
const (
	defaultCNIBin  = "/opt/cni/bin"
	defaultCNIConf = "/etc/cni/net.d"
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
	nodeConfiguration        bool
	defaultDelegate          string
}

// parseOptions reads the flags. It prints the help that --help asks for to stderr.
func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{releaseTimeout: defaultReleaseTimeout, vtepRanges: netwatcher.VTEPRanges{}}
	f := pflag.NewFlagSet("patchbayd", pflag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.node, "node-name", os.Getenv("NODE_NAME"), "`name` of this Node (environment NODE_NAME)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; the Pod's service account when empty")
	f.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "`namespace` of the daemon's own DaemonSet (environment POD_NAMESPACE)")
	f.StringVar(&o.daemonSet, "daemonset", "patchbayd", "`name` of the daemon's own DaemonSet: when it is deleted, the plugin is uninstalled")
	f.StringVar(&o.socket, "socket", wire.DefaultSocket, "Unix socket `path` on which the plugin reaches the daemon")
	f.StringVar(&o.pending, "pending-del-dir", wire.DefaultPendingDir, "`folder` in which the plugin stores DELs while no daemon runs")
	f.StringVar(&o.journal, "journal", journal.DefaultPath, "`file` of the journal")
	f.StringVar(&o.hostRoot, "host-root", "/", "`folder` at which the node's root file system is mounted; other CNI plugins run in it")
	f.StringVar(&o.cniBin, "cni-bin-dir", defaultCNIBin, "`folder` of the CNI plugins; the daemon installs its own there, and checks for those that networks name")
	f.StringVar(&o.cniConf, "cni-conf-dir", defaultCNIConf, "`folder` of the CNI configurations; the daemon installs its own there, and checks for those that networks name")
	f.StringVar(&o.plugin, "plugin", "/patchbay", "`file` of the plugin to install")
	f.StringVar(&o.cniVersion, "cni-version", install.DefaultCNIVersion, "CNI `version` of the installed configuration")
	f.StringVar(&o.namingScheme, "naming-scheme", "", "`scheme` of interface names: empty, or legacy for the names that DANM gives")
	f.StringVar(&o.healthAddress, "health-address", "127.0.0.1:9640", "`address` that serves /healthz and /readyz")
	o.secureMetrics.AddFlags(f)
	f.Func("vtep-ranges", "subnets of the other nodes' VTEPs on a NIC, as `NIC=CIDR[,CIDR...]`; may be repeated. For a NIC without this flag, the subnets that this node has on the NIC", o.addVTEPRanges)
	f.IntVar(&o.warmPoolLimit, "warm-pool-limit", 64, "largest `number` of addresses in this node's warm pool, per network and family; with 0 each Pod costs a write to the API server")
	f.DurationVar(&o.cooldown, "address-cooldown", 10*time.Second, "cooldown: `duration` after a Pod's end before this node uses the Pod's dynamic address again or returns it")
	f.BoolVar(&o.install, "install", true, "install the plugin and its configuration when the daemon is ready")
	f.BoolVar(&o.nodeConfiguration, "node-configuration", true, "give Pods without an annotation, while no network default is for them, the CNI configuration of --default-delegate; with false, they do not start")
	f.StringVar(&o.defaultDelegate, "default-delegate", "", "name of the `file` in --cni-conf-dir that is the CNI configuration of Pods without an annotation, such as 10-calico.conflist; empty for the first one beside Patchbay's. The daemon is not ready on a node without the file")
	f.BoolVar(&o.debug, "debug", false, "log debug messages too")
	f.BoolVar(&o.version, "version", false, "print the version and exit")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("arguments: must be none besides flags: got %q", f.Args())
	}
	if o.node == "" && !o.version {
		return nil, errors.New("flag --node-name: must not be empty: give the name of this Node object (environment NODE_NAME)")
	}
	if o.warmPoolLimit < 0 || o.cooldown < 0 {
		return nil, fmt.Errorf("flags --warm-pool-limit=%d and --address-cooldown=%s: must not be negative", o.warmPoolLimit, o.cooldown)
	}
	if !o.nodeConfiguration && o.defaultDelegate != "" {
		return nil, fmt.Errorf("flags --default-delegate=%s and --node-configuration=false: must not be set both: Pods without an annotation get this file, or they do not start", o.defaultDelegate)
	}
	return o, nil
}

// addVTEPRanges adds the value of one --vtep-ranges flag.
func (o *options) addVTEPRanges(text string) error {
	nic, list, ok := strings.Cut(text, "=")
	if !ok || nic == "" {
		return fmt.Errorf("%q: must be NIC=CIDR[,CIDR...], such as ens5=10.50.0.0/16", text)
	}
	for cidr := range strings.SplitSeq(list, ",") {
		p, err := netip.ParsePrefix(cidr)
		if err != nil || p != p.Masked() {
			return fmt.Errorf("%q of NIC %s: must be a subnet without host bits, such as 10.50.0.0/16", cidr, nic)
		}
		o.vtepRanges[nic] = append(o.vtepRanges[nic], p)
	}
	return nil
}
