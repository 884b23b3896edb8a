// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/internal/invite"
)

// newToken is the verb that makes a join token.
func newToken(ctx context.Context, a *kubeFlags) *cobra.Command {
	var life time.Duration
	var server string
	cmd := &cobra.Command{
		Use:   "token CLUSTER",
		Short: "Make a join token for one cluster and print the command to join with",
		Long: "Makes a bootstrap token at the hub, with which the agent of one cluster may ask for its certificate,\n" +
			"and prints the command that installs that agent. It is run with the cluster's kubeconfig. The hub\n" +
			"signs nothing before the Cluster is accepted. Whoever has the token can ask in that name while it lasts.",
		Example: "  kubectl patchbay hub token east --hub=https://hub.example.com:6443",
		Args:    exactlyOneArgument(clusterArgument),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := invite.ValidateClusterName(args[0]); err != nil {
				return err
			}
			if life < time.Minute || life > 7*24*time.Hour {
				return fmt.Errorf("flag --ttl: got %v, want 1m to 168h", life)
			}
			c, cfg, err := a.openPlacement()
			if err != nil {
				return err
			}
			ca, err := certificateAuthority(cfg)
			if err != nil {
				return err
			}
			if server == "" {
				server = cfg.Host
			}
			i := invite.Invitation{Cluster: args[0], Hub: server, CA: ca, ExpiresAt: time.Now().Add(life)}
			return i.Issue(ctx, c, fieldOwner, cmd.OutOrStdout())
		},
	}
	cmd.Flags().DurationVar(&life, "ttl", time.Hour, "how long the token lasts")
	cmd.Flags().StringVar(&server, "hub", "", "the hub's address as the cluster reaches it; default: as the kubeconfig does")
	return cmd
}

// certificateAuthority is the certificate authority of the hub, as PEM; nothing for one that every
// machine knows.
func certificateAuthority(cfg *rest.Config) ([]byte, error) {
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
