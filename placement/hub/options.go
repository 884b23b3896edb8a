// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/patchbay-cni/patchbay/internal/securemetrics"
)

// options are the program's flags.
type options struct {
	kubeconfig, namespace       string
	healthAddress               string
	secureMetrics               securemetrics.Options
	workers                     int
	leaderElect, debug, version bool
}

// parseOptions reads the flags; the message of a wrong one goes to stderr.
func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("patchbay-hub", flag.ContinueOnError)
	f.SetOutput(stderr)
	o.addFlags(f)
	f.StringVar(&o.namespace, "namespace", podNamespaceOr("patchbay-system"), "`namespace` of the hub's own Lease (environment POD_NAMESPACE)")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "act only while holding the Lease; false is for a single replica")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the hub's API server; the Pod's service account when empty")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	return o, o.validate(f.NArg())
}

func podNamespaceOr(otherwise string) string {
	if n := os.Getenv("POD_NAMESPACE"); n != "" {
		return n
	}
	return otherwise
}

// addFlags adds the flags that `up` has, too.
func (o *options) addFlags(f *flag.FlagSet) {
	f.StringVar(&o.healthAddress, "http-address", "127.0.0.1:9643", "`address` for /healthz and /readyz")
	o.secureMetrics.AddFlags(f)
	f.IntVar(&o.workers, "workers", 8, "how many objects are placed at a time")
	f.BoolVar(&o.debug, "debug", false, "log more")
	f.BoolVar(&o.version, "version", false, "print the version")
}

// validate refuses what the program must not start with.
func (o *options) validate(rest int) error {
	switch {
	case rest > 0:
		return errors.New("arguments after the flags: want none, or `up` before them")
	case o.version:
		return nil
	case o.leaderElect && o.namespace == "":
		return errors.New("flag --namespace: the hub must know where its Lease is: give the namespace that it runs in")
	case o.workers < 1 || o.workers > 1000:
		return fmt.Errorf("flag --workers: got %d, want 1 to 1000", o.workers)
	}
	return nil
}
