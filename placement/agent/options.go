// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/works"
)

// options are the agent's flags.
type options struct {
	cluster                          string
	hubKubeconfig, kubeconfig        string
	namespace, identity              string
	serviceAccount                   string
	certificateSecret, healthAddress string
	hubAddresses, allowedResources   []string
	podSecurity                      v1alpha1.PodSecurityLevel
	join, debug, version             bool
	tokenAuth, leaderElect           bool
	debugAccess                      bool
	refusedAfter                     time.Duration
	reportRoom                       bool
}

// parseOptions reads the flags. It prints the help that --help asks for to stderr.
func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := pflag.NewFlagSet("patchbay-agent", pflag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.cluster, "cluster", "", "`name` of the Cluster object at the hub that stands for this cluster")
	f.StringVar(&o.hubKubeconfig, "hub-kubeconfig", "", "kubeconfig `file` of the hub: address, certificate authority and a credential; HTTPS_PROXY is respected")
	f.BoolVar(&o.join, "join", false, "exchange the join token in --hub-kubeconfig for a certificate, and renew the certificate; "+
		"without this flag the agent uses the credential as it is (and reads a token file again when it changes)")
	f.BoolVar(&o.tokenAuth, "token-auth", false, "join with short-lived tokens of a ServiceAccount at the hub, not with a certificate, "+
		"because a load balancer in front of the hub terminates TLS")
	f.StringVar(&o.certificateSecret, "certificate-secret", "patchbay-agent-certificate", "`name` of the Secret that stores the certificate (with --join)")
	f.Func("hub-address", "further `address` of the hub, used when the one in --hub-kubeconfig does not answer; may be repeated", func(text string) error {
		o.hubAddresses = append(o.hubAddresses, text)
		return nil
	})
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` of this cluster; the Pod's service account when empty")
	f.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "the agent's own `namespace` (environment POD_NAMESPACE)")
	f.StringVar(&o.serviceAccount, "service-account", cmp.Or(os.Getenv("POD_SERVICE_ACCOUNT"), "patchbay-agent"),
		"`name` of the agent's ServiceAccount, for its RoleBindings (environment POD_SERVICE_ACCOUNT)")
	f.StringVar(&o.identity, "identity", os.Getenv("POD_NAME"), "`name` of this process in its heartbeat (environment POD_NAME; otherwise the host name)")
	f.Func("allowed-resources", "comma-separated `resources` that the agent may write, such as deployments.apps,services, as far as RBAC allows; "+
		"may be repeated; ordinary workloads and all custom resources when not given", func(text string) error {
		o.allowedResources = append(o.allowedResources, strings.Split(text, ",")...)
		return nil
	})
	f.StringVar((*string)(&o.podSecurity), "pod-security", string(v1alpha1.PodSecurityBaseline),
		"lowest Pod Security `level` (baseline or restricted) that namespaces created by the agent enforce; the hub may ask for a stricter one")
	f.BoolVar(&o.debugAccess, "debug-access", false, "let people at the hub read, and exec into, what the hub has placed here, as far as this cluster's RBAC "+
		"allows it to the users patchbay:NAME; needs the ClusterRole patchbay-agent-debug")
	f.DurationVar(&o.refusedAfter, "refused-after", works.DefaultRefusedAfter, "`time` after which the hub places replicas elsewhere whose Pods this cluster "+
		"neither schedules nor creates; with a cluster autoscaler longer than a new node takes to be ready")
	f.BoolVar(&o.reportRoom, "report-room", true, "report what the nodes have free, so that the hub requests no more replicas than fit; "+
		"set false with a cluster autoscaler, which adds nodes only for Pods that do not fit")
	f.StringVar(&o.healthAddress, "health-address", "127.0.0.1:9642", "`address` that serves /healthz and /readyz")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "act only while this replica holds the Lease patchbay-agent; set false only for a single replica")
	f.BoolVar(&o.debug, "debug", false, "log debug messages too")
	f.BoolVar(&o.version, "version", false, "print the version and exit")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	return o, o.validate(f.Args())
}

// validate rejects options that the agent must not start with. The arguments are those that are
// no flags.
func (o *options) validate(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("arguments: must be none besides flags: got %q", args)
	case o.version:
		return nil
	case o.hubKubeconfig == "":
		return errors.New("flag --hub-kubeconfig: must not be empty: give the kubeconfig file of this cluster's hub (`kubectl patchbay cluster join` writes one)")
	case o.refusedAfter <= 0:
		return fmt.Errorf("flag --refused-after: must be more than 0: got %s", o.refusedAfter)
	case o.tokenAuth && !o.join:
		return errors.New("flag --token-auth: must come with --join")
	case o.namespace == "":
		return errors.New("flag --namespace: must not be empty: give the namespace in which this agent runs (environment POD_NAMESPACE)")
	case o.podSecurity != v1alpha1.PodSecurityBaseline && o.podSecurity != v1alpha1.PodSecurityRestricted:
		return fmt.Errorf("flag --pod-security: must be baseline or restricted: got %q; for Pods that need more, the cluster's admin "+
			"creates the namespace and labels it %s=%s", o.podSecurity, v1alpha1.AccessLabel, v1alpha1.AccessCreate)
	}
	if problems := validation.IsDNS1123Label(o.cluster); len(problems) > 0 || len(o.cluster) > maxClusterNameLength {
		return fmt.Errorf("flag --cluster: must be the name of a Cluster, at most %d lower case letters, digits and -: got %q", maxClusterNameLength, o.cluster)
	}
	if o.identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("flag --identity: %w", err)
		}
		o.identity = host
	}
	return nil
}

// maxClusterNameLength leaves room for the prefix "cluster-" of the cluster's namespace at the hub.
const maxClusterNameLength = validation.DNS1123LabelMaxLength - len("cluster-")
