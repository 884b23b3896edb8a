// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
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
}

// parseOptions reads the flags; the message of a wrong one goes to stderr.
func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("patchbay-agent", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.cluster, "cluster", "", "`name` of this cluster's Cluster at the hub")
	f.StringVar(&o.hubKubeconfig, "hub-kubeconfig", "", "kubeconfig `file` with the hub's address, its authority, and a credential; HTTPS_PROXY is heeded")
	f.BoolVar(&o.join, "join", false, "the credential in --hub-kubeconfig is a join token: get a certificate with it, and renew that; "+
		"else the credential is used as it is (a token file is read again when it changes)")
	f.BoolVar(&o.tokenAuth, "token-auth", false, "join with short-lived tokens of a ServiceAccount at the hub, not with a certificate: "+
		"for a load balancer on the way that ends TLS")
	f.StringVar(&o.certificateSecret, "certificate-secret", "patchbay-agent-certificate", "`name` of the Secret that keeps the certificate (with --join)")
	f.Func("hub-address", "further `address` of the hub, for when the one in --hub-kubeconfig does not answer; may be repeated", func(text string) error {
		o.hubAddresses = append(o.hubAddresses, text)
		return nil
	})
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` of this cluster; the Pod's service account when empty")
	f.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "the agent's own `namespace` (environment POD_NAMESPACE)")
	f.StringVar(&o.serviceAccount, "service-account", cmp.Or(os.Getenv("POD_SERVICE_ACCOUNT"), "patchbay-agent"),
		"`name` of the agent's ServiceAccount, for its RoleBindings (environment POD_SERVICE_ACCOUNT)")
	f.StringVar(&o.identity, "identity", os.Getenv("POD_NAME"), "`name` of this process in its heartbeat (environment POD_NAME; else the host's name)")
	f.Func("allow", "`resources` that may be written, such as deployments.apps,services, as far as RBAC allows them; "+
		"ordinary workloads, and all custom resources, when not given", func(text string) error {
		o.allowedResources = append(o.allowedResources, strings.Split(text, ",")...)
		return nil
	})
	f.StringVar((*string)(&o.podSecurity), "pod-security", string(v1alpha1.PodSecurityBaseline),
		"least Pod Security `level` (baseline or restricted) that namespaces enforce which the agent makes; the hub may ask for a stricter one")
	f.StringVar(&o.healthAddress, "http-address", "127.0.0.1:9642", "`address` for /healthz and /readyz")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "act only while holding the Lease patchbay-agent; false is for a single replica")
	f.BoolVar(&o.debug, "debug", false, "log more")
	f.BoolVar(&o.version, "version", false, "print the version")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	return o, o.validate(f.NArg())
}

// validate refuses what the agent must not start with.
func (o *options) validate(rest int) error {
	switch {
	case rest > 0:
		return errors.New("arguments after the flags: want none")
	case o.version:
		return nil
	case o.hubKubeconfig == "":
		return errors.New("flag --hub-kubeconfig: give the kubeconfig file of the hub that this cluster obeys (`kubectl patchbay cluster join` writes one)")
	case o.tokenAuth && !o.join:
		return errors.New("flag --token-auth: is a way to join, so give --join too")
	case o.namespace == "":
		return errors.New("flag --namespace: give the namespace in which this agent runs (environment POD_NAMESPACE)")
	case o.podSecurity != v1alpha1.PodSecurityBaseline && o.podSecurity != v1alpha1.PodSecurityRestricted:
		return fmt.Errorf("flag --pod-security: %q must be baseline or restricted; where Pods need more, the cluster's admin "+
			"makes the namespace and labels it %s=%s", o.podSecurity, v1alpha1.AccessLabel, v1alpha1.AccessCreate)
	}
	if problems := validation.IsDNS1123Label(o.cluster); len(problems) > 0 || len(o.cluster) > maxClusterNameLength {
		return fmt.Errorf("flag --cluster: %q is no name of a Cluster: at most %d lower case letters, digits and -", o.cluster, maxClusterNameLength)
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

// maxClusterNameLength leaves room for "cluster-" in the name of a namespace.
const maxClusterNameLength = validation.DNS1123LabelMaxLength - len("cluster-")
