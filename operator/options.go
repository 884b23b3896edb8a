// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/patchbay-cni/patchbay/internal/securemetrics"
)

// options are the flags of patchbay-operator.
type options struct {
	kubeconfig, namespace       string
	healthAddress               string
	secureMetrics               securemetrics.Options
	leaderElect, debug, version bool
}

func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := pflag.NewFlagSet("patchbay-operator", pflag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; the Pod's service account when empty")
	f.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "`namespace` of the operator's own Lease (environment POD_NAMESPACE)")
	f.StringVar(&o.healthAddress, "health-address", "127.0.0.1:9647", "`address` that serves /healthz and /readyz")
	o.secureMetrics.AddFlags(f)
	f.BoolVar(&o.leaderElect, "leader-elect", true, "act only while this replica holds the Lease; set false only for a single replica")
	f.BoolVar(&o.debug, "debug", false, "log debug messages too")
	f.BoolVar(&o.version, "version", false, "print the version and exit")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("arguments: must be none besides flags: got %q", f.Args())
	case !o.version && o.leaderElect && o.namespace == "":
		return nil, errors.New("flag --namespace: must not be empty with --leader-elect, for the Lease: give the namespace that the operator runs in")
	}
	return o, nil
}
