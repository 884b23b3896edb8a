// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// Users that our programs are known by in audit logs.
const (
	HubUser   = "system:serviceaccount:patchbay-system:patchbay-hub"
	AgentUser = "system:serviceaccount:patchbay-system:patchbay-agent"
)

// Groups are those of our programs' service accounts.
func Groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:patchbay-system"}
}

// StartHub installs the hub's kinds and starts patchbay-hub, with more flags.
func (b *Bed) StartHub(ctx context.Context, flags ...string) (process.ID, error) {
	if err := Install(ctx, b.Hub.Config, "placement/crds", "CustomResourceDefinition"); err != nil {
		return process.ID{}, err
	}
	if err := Install(ctx, b.Hub.Config, "placement/hub", "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding",
		"Role", "RoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"); err != nil {
		return process.ID{}, err
	}
	kubeconfig, err := b.Hub.AccountKubeconfig(ctx, v1alpha1.SystemNamespace, "patchbay-hub")
	if err != nil {
		return process.ID{}, err
	}
	return b.RunHub(kubeconfig, flags...)
}

// RunHub starts patchbay-hub by that way to a hub where all is installed, with more flags.
func (b *Bed) RunHub(kubeconfig string, flags ...string) (process.ID, error) {
	return b.Hub.startProgram("patchbay-hub", append([]string{filepath.Join(b.config.Programs, "patchbay-hub"),
		"--kubeconfig=" + kubeconfig, "--health-address=127.0.0.1:0", "--leader-elect=false"}, flags...)...)
}

// StartHubReplica starts a patchbay-hub that competes with others for the lead, with more flags.
func (b *Bed) StartHubReplica(ctx context.Context, name string, flags ...string) (process.ID, error) {
	kubeconfig, err := b.Hub.AccountKubeconfig(ctx, v1alpha1.SystemNamespace, "patchbay-hub")
	if err != nil {
		return process.ID{}, err
	}
	return b.Hub.startProgram(name, append([]string{filepath.Join(b.config.Programs, "patchbay-hub"),
		"--kubeconfig=" + kubeconfig, "--health-address=127.0.0.1:0", "--leader-elect=true"}, flags...)...)
}

// CreateCluster makes the Cluster at the hub, as an infrastructure person would.
func (b *Bed) CreateCluster(ctx context.Context, name string, spec v1alpha1.ClusterSpec) error {
	spec.Accepted = true
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}, Spec: spec}
	if err := b.Hub.Client.Create(ctx, c); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Cluster %s: %w", name, err)
	}
	return nil
}

// StartAgent installs what the agent needs in its cluster, and starts it with a join
// token and the rights that deployments/ gives it. Env is added to its environment.
func (b *Bed) StartAgent(ctx context.Context, name string, env ...string) (process.ID, error) {
	c := b.Clusters[name]
	if err := Install(ctx, c.Config, "placement/crds", "CustomResourceDefinition"); err != nil {
		return process.ID{}, err
	}
	if err := InstallAgent(ctx, c.Config); err != nil {
		return process.ID{}, err
	}
	if b.config.APIServersOnly {
		if err := AggregateAgentRole(ctx, c.Client); err != nil {
			return process.ID{}, err
		}
	}
	local, err := c.UserKubeconfig(AgentUser, Groups()...)
	if err != nil {
		return process.ID{}, err
	}
	hub := filepath.Join(c.dir, "hub.kubeconfig")
	if _, err := os.Stat(hub); errors.Is(err, os.ErrNotExist) {
		if err := b.writeJoinKubeconfig(ctx, c, hub); err != nil {
			return process.ID{}, err
		}
	}
	return b.RunAgent(name, local, hub, []string{"--join"}, env...)
}

// refusedAfter is a flag of all agents: tests do not wait for minutes.
const refusedAfter = "--refused-after=20s"

// RunAgent starts an agent by those ways to its cluster and to the hub, with more flags
// and environment.
func (b *Bed) RunAgent(name, local, hub string, flags []string, env ...string) (process.ID, error) {
	args := append([]string{
		filepath.Join(b.config.Programs, "patchbay-agent"), "--cluster=" + name, "--kubeconfig=" + local, "--hub-kubeconfig=" + hub,
		"--namespace=patchbay-system", "--identity=" + name, "--health-address=127.0.0.1:0", "--leader-elect=false", "--debug",
		refusedAfter,
	}, flags...)
	return b.Clusters[name].startProgramWithEnv("patchbay-agent", env, args...)
}

// HubRoute is how an agent gets to the hub.
type HubRoute struct {
	// Hub is the hub's address, Further are more of them.
	Hub          string
	FallbackHubs []string
	// CA is the authority of who answers there; the hub's without.
	CA []byte
	// Proxy is the agent's HTTPS_PROXY.
	Proxy string
	// TokenAuth has it join with tokens, not with a certificate.
	TokenAuth bool
	// Debug lets people at the hub look into the cluster.
	Debug bool
	// Netns is where the agent runs, and Local its cluster's API server there.
	Netns *IsolatedNetns
	Local string
}

// StartAgentVia starts the agent of a cluster where one ran: it joins anew, by that way.
// Identity is what its heartbeat says who it is.
func (b *Bed) StartAgentVia(ctx context.Context, name, identity string, way HubRoute) (process.ID, error) {
	c := b.Clusters[name]
	for _, secret := range []string{"patchbay-agent-certificate", "patchbay-agent-token"} {
		old := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "patchbay-system", Name: secret}}
		if err := c.Client.Delete(ctx, old); client.IgnoreNotFound(err) != nil {
			return process.ID{}, fmt.Errorf("delete Secret %s: %w", secret, err)
		}
	}
	local, err := c.UserKubeconfig(AgentUser, Groups()...)
	if err != nil {
		return process.ID{}, err
	}
	hub := filepath.Join(c.dir, identity+".kubeconfig")
	if err := errors.Join(b.writeJoinKubeconfig(ctx, c, hub), setServer(hub, way.Hub, way.CA), setServer(local, way.Local, nil)); err != nil {
		return process.ID{}, err
	}
	if way.Debug {
		if err := Install(ctx, c.Config, "placement/agent-debug", "ClusterRole", "ClusterRoleBinding"); err != nil {
			return process.ID{}, err
		}
	}
	var args, env []string
	if way.Netns != nil {
		args = way.Netns.execPrefix()
	}
	args = append(args, filepath.Join(b.config.Programs, "patchbay-agent"),
		"--cluster="+name, "--kubeconfig="+local, "--hub-kubeconfig="+hub, "--join", "--namespace=patchbay-system",
		"--identity="+identity, "--health-address=127.0.0.1:0", "--leader-elect=false", "--debug", refusedAfter)
	for _, address := range way.FallbackHubs {
		args = append(args, "--hub-address="+address)
	}
	if way.TokenAuth {
		args = append(args, "--token-auth")
	}
	if way.Debug {
		args = append(args, "--debug-access")
	}
	if way.Proxy != "" {
		env = append(env, "HTTPS_PROXY="+way.Proxy)
	}
	return c.startProgramWithEnv("patchbay-agent", env, args...)
}

// setServer changes whom a kubeconfig leads to; "" and nil leave it as it is.
func setServer(file, server string, ca []byte) error {
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	for _, c := range config.Clusters {
		if server != "" {
			c.Server = server
		}
		if ca != nil {
			c.CertificateAuthorityData = ca
		}
	}
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// InstallAgent installs the agent's rights and what confines them.
func InstallAgent(ctx context.Context, config *rest.Config) error {
	return Install(ctx, config, "placement/agent", "Namespace", "ServiceAccount", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
}

// AggregateAgentRole gives the agent what the aggregation of roles would, where no controller manager
// runs to do so.
func AggregateAgentRole(ctx context.Context, c client.Client) error {
	for _, name := range []string{"patchbay-agent-placeable", "patchbay-agent-cluster-scoped"} {
		var roles rbacv1.ClusterRoleList
		whole := &rbacv1.ClusterRole{}
		if err := errors.Join(c.Get(ctx, client.ObjectKey{Name: name}, whole), c.List(ctx, &roles)); err != nil {
			return fmt.Errorf("give the agent its rights: %w", err)
		}
		whole.Rules = nil
		for i := range roles.Items {
			if labels := whole.AggregationRule.ClusterRoleSelectors[0].MatchLabels; isSubset(labels, roles.Items[i].Labels) {
				whole.Rules = append(whole.Rules, roles.Items[i].Rules...)
			}
		}
		if err := c.Update(ctx, whole); err != nil {
			return fmt.Errorf("give the agent its rights: %w", err)
		}
	}
	return nil
}

func isSubset(part, whole map[string]string) bool {
	for key, value := range part {
		if whole[key] != value {
			return false
		}
	}
	return true
}

// writeJoinKubeconfig makes a join token at the hub and writes the kubeconfig that has it. The
// hub's address in it is the link's.
func (b *Bed) writeJoinKubeconfig(ctx context.Context, c *Cluster, file string) error {
	id, secret := tokenID(c.Name), "0123456789abcdef"
	o := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id, Labels: map[string]string{v1alpha1.JoinClusterLabel: c.Name},
		},
		Type: "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
			"auth-extra-groups": v1alpha1.BootstrapGroupPrefix + c.Name,
		},
	}
	if err := b.Hub.Client.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create join token: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: c.Link.URL(), CertificateAuthorityData: b.Hub.Config.CAData}
	config.AuthInfos["join"] = &clientcmdapi.AuthInfo{Token: id + "." + secret}
	config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "join"}
	config.CurrentContext = "hub"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return fmt.Errorf("write join kubeconfig: %w", err)
	}
	return nil
}

// tokenID makes the six characters of a token's name that stand for a cluster's.
func tokenID(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return fmt.Sprintf("%06x", h.Sum32()&0xffffff)
}
