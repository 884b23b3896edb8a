// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// Way is how an agent gets to the hub.
type Way struct {
	// Hub is the hub's address, Further are more of them.
	Hub     string
	Further []string
	// CA is the authority of who answers there; the hub's without.
	CA []byte
	// Proxy is the agent's HTTPS_PROXY.
	Proxy string
	// TokenAuth has it join with tokens, not with a certificate.
	TokenAuth bool
	// Island is where the agent runs, and Local its cluster's API server there.
	Island *Island
	Local  string
}

// StartAgentBy starts the agent of a cluster where one ran: it joins anew, by that way.
// Identity is what its heartbeat says who it is.
func (b *Bed) StartAgentBy(ctx context.Context, name, identity string, way Way) (process.ID, error) {
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
	if err := errors.Join(b.writeJoin(ctx, c, hub), readdress(hub, way.Hub, way.CA), readdress(local, way.Local, nil)); err != nil {
		return process.ID{}, err
	}
	var args, env []string
	if way.Island != nil {
		args = way.Island.enter()
	}
	args = append(args, filepath.Join(b.config.Programs, "patchbay-agent"),
		"--cluster="+name, "--kubeconfig="+local, "--hub-kubeconfig="+hub, "--join", "--namespace=patchbay-system",
		"--identity="+identity, "--http-address=127.0.0.1:0", "--leader-elect=false", "--debug")
	for _, address := range way.Further {
		args = append(args, "--hub-address="+address)
	}
	if way.TokenAuth {
		args = append(args, "--token-auth")
	}
	if way.Proxy != "" {
		env = append(env, "HTTPS_PROXY="+way.Proxy)
	}
	return c.runEnv("patchbay-agent", env, args...)
}

// readdress changes whom a kubeconfig leads to; "" and nil leave it as it is.
func readdress(file, server string, ca []byte) error {
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

// StartHubReplica starts a patchbay-hub that competes with others for the lead.
func (b *Bed) StartHubReplica(ctx context.Context, name string) (process.ID, error) {
	kubeconfig, err := b.Hub.AccountKubeconfig(ctx, v1alpha1.SystemNamespace, "patchbay-hub")
	if err != nil {
		return process.ID{}, err
	}
	return b.Hub.run(name, filepath.Join(b.config.Programs, "patchbay-hub"),
		"--kubeconfig="+kubeconfig, "--http-address=127.0.0.1:0", "--leader-elect=true")
}
