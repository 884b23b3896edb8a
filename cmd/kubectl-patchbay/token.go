// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// newToken is the verb that makes a join token.
func newToken(ctx context.Context, a *access) *cobra.Command {
	var life time.Duration
	var server string
	cmd := &cobra.Command{
		Use:   "token CLUSTER",
		Short: "Make a join token for one cluster and print the command to join with",
		Long: "Makes a bootstrap token at the hub, with which the agent of one cluster may ask for its certificate,\n" +
			"and prints the command that installs that agent. It is run with the cluster's kubeconfig. The hub\n" +
			"signs nothing before the Cluster is accepted. Whoever has the token can ask in that name while it lasts.",
		Example: "  kubectl patchbay hub token east --hub=https://hub.example.com:6443",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := clusterName(args[0]); err != nil {
				return err
			}
			if life < time.Minute || life > 7*24*time.Hour {
				return fmt.Errorf("flag --ttl: got %v, want 1m to 168h", life)
			}
			c, cfg, err := a.openPlacement()
			if err != nil {
				return err
			}
			ca, err := authority(cfg)
			if err != nil {
				return err
			}
			if server == "" {
				server = cfg.Host
			}
			secret := newTokenSecret(args[0], time.Now().Add(life))
			// A copy: the API server's answer has no stringData.
			if err := c.Create(ctx, secret.DeepCopy(), client.FieldOwner("kubectl-patchbay")); err != nil {
				return fmt.Errorf("create join token of %s: %w", args[0], err)
			}
			return printJoin(cmd.OutOrStdout(), args[0], server, secret, ca)
		},
	}
	cmd.Flags().DurationVar(&life, "ttl", time.Hour, "how long the token lasts")
	cmd.Flags().StringVar(&server, "hub", "", "the hub's address as the cluster reaches it; default: as the kubeconfig does")
	return cmd
}

// authority is the certificate authority of the hub, as PEM; nothing for one that every
// machine knows.
func authority(cfg *rest.Config) ([]byte, error) {
	if cfg.Insecure {
		return nil, errors.New("the kubeconfig does not check the hub's certificate: an agent must, so give the kubeconfig the authority")
	}
	if len(cfg.CAData) > 0 || cfg.CAFile == "" {
		return cfg.CAData, nil
	}
	ca, err := os.ReadFile(cfg.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the hub's certificate authority: %w", err)
	}
	return ca, nil
}

// newTokenSecret is a bootstrap token that can be used for nothing but to join as one
// cluster. Id and secret have 30 and 80 random bits.
func newTokenSecret(cluster string, until time.Time) *corev1.Secret {
	random := strings.ToLower(rand.Text())
	id := random[:6]
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id,
			Labels: map[string]string{v1alpha1.JoinTokenLabel: cluster},
		},
		Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": random[6:22], "expiration": until.UTC().Format(time.RFC3339),
			"usage-bootstrap-authentication": "true", "auth-extra-groups": v1alpha1.BootstrapGroupPrefix + cluster,
			"description": "patchbay: join of the cluster " + cluster,
		},
	}
}

// printJoin prints what to run next.
func printJoin(out io.Writer, cluster, server string, secret *corev1.Secret, ca []byte) error {
	d := secret.StringData
	_, err := fmt.Fprintf(out, "# With the kubeconfig of the cluster %[1]s, before %[2]s:\n"+
		"kubectl patchbay cluster join %[1]s --hub=%[3]s --join-token=%[4]s.%[5]s%[6]s\n\n"+
		"# With that of the hub, once it may join:\nkubectl patchbay cluster accept %[1]s\n",
		cluster, d["expiration"], server, d["token-id"], d["token-secret"], caFlag(ca))
	return err
}

// caFlag is the flag with the authority, if there is one of its own.
func caFlag(ca []byte) string {
	if len(ca) == 0 {
		return ""
	}
	return " --ca=" + base64.StdEncoding.EncodeToString(ca)
}
