// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/patchbay-cni/patchbay/internal/securemetrics"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/debugapi"
)

// options are the program's flags.
type options struct {
	kubeconfig, namespace       string
	healthAddress               string
	debugAddress, debugHost     string
	secureMetrics               securemetrics.Options
	workers                     int
	leaderElect, debug, version bool
}

// parseOptions reads the flags. It prints the help that --help asks for to stderr.
func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := pflag.NewFlagSet("patchbay-hub", pflag.ContinueOnError)
	f.SetOutput(stderr)
	o.addFlags(f)
	f.StringVar(&o.namespace, "namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), "patchbay-system"), "`namespace` of the hub's own Lease (environment POD_NAMESPACE)")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "act only while this replica holds the Lease; set false only for a single replica")
	f.StringVar(&o.debugAddress, "debug-address", "", "`address` that serves the aggregated API debug.placement.patchbay.io to the hub's API server, "+
		"by which people reach clusters; no such API when empty")
	f.StringVar(&o.debugHost, "debug-host", "", "`host` (DNS name or IPv4 address), or host:port, by which the hub's API server reaches --debug-address; "+
		"when empty, you make the Service patchbay-hub in patchbay-system yourself")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the hub's API server; the Pod's service account when empty")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	return o, o.validate(f.Args())
}

// addFlags adds the flags that `patchbay-hub` and `patchbay-hub up` have in common.
func (o *options) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.healthAddress, "health-address", "127.0.0.1:9643", "`address` that serves /healthz and /readyz")
	o.secureMetrics.AddFlags(f)
	f.IntVar(&o.workers, "workers", 8, "`number` of objects that are placed at the same time")
	f.BoolVar(&o.debug, "debug", false, "log debug messages too")
	f.BoolVar(&o.version, "version", false, "print the version and exit")
}

// validate rejects options that the program must not start with. The arguments are those that
// are no flags.
func (o *options) validate(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("arguments: must be none besides flags, or `up` before all flags: got %q", args)
	case o.version:
		return nil
	case o.debugHost != "" && o.debugAddress == "":
		return errors.New("flag --debug-host: must come with --debug-address")
	case o.leaderElect && o.namespace == "":
		return errors.New("flag --namespace: must not be empty with --leader-elect, for the Lease: give the namespace that the hub runs in")
	case o.workers < 1 || o.workers > 1000:
		return fmt.Errorf("flag --workers: must be 1 to 1000: got %d", o.workers)
	}
	_, err := o.debugConfig()
	return err
}

// debugConfig returns the configuration of the debug API.
func (o *options) debugConfig() (debugapi.Config, error) {
	c := debugapi.Config{Address: o.debugAddress, Host: o.debugHost}
	if host, port, err := net.SplitHostPort(o.debugHost); err == nil {
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 {
			return c, fmt.Errorf("flag --debug-host: port must be 1 to 65535: got %q", o.debugHost)
		}
		c.Host, c.Port = host, int(number)
	}
	if c.Host != "" && len(validation.IsDNS1123Subdomain(c.Host)) > 0 { // also the form of an IPv4 address
		return c, fmt.Errorf("flag --debug-host: must be a DNS name or an IPv4 address, for a Service of type ExternalName: got %q", o.debugHost)
	}
	return c, nil
}
