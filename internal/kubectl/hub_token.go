// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/internal/invite"
)

// newToken is the verb `hub token`.
func newToken(f *factory) *cobra.Command {
	var ttl time.Duration
	var server string
	cmd := &cobra.Command{
		Use:   "token CLUSTER",
		Short: "Create a join token for one cluster and print the join command",
		Long: "Creates a bootstrap token at the hub, with which the agent of one cluster requests its certificate,\n" +
			"and prints the command that installs that agent. Run that command with the cluster's kubeconfig. The hub\n" +
			"signs no certificate before the Cluster is accepted. Keep the token secret: until it expires, it allows\n" +
			"requests in the name of that cluster.",
		Example:           "  kubectl patchbay hub token east --hub=https://hub.example.com:6443",
		Args:              exactlyOneArgument(clusterArgument),
		ValidArgsFunction: firstArgument(f.clusterNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := invite.ValidateClusterName(args[0]); err != nil {
				return err
			}
			if ttl < time.Minute || ttl > 7*24*time.Hour {
				return fmt.Errorf("flag --ttl: must be 1m to 168h: got %v", ttl)
			}
			c, cfg, err := f.placementClient()
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
			i := invite.Invitation{Cluster: args[0], Hub: server, CA: ca, ExpiresAt: time.Now().Add(ttl)}
			return i.Issue(cmd.Context(), c, fieldOwner, f.Out)
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", time.Hour, "the time after which the token expires")
	cmd.Flags().StringVar(&server, "hub", "", "the address at which the cluster reaches the hub; default: the address in the kubeconfig")
	return cmd
}

// certificateAuthority returns the certificate authority of the hub as PEM, and nothing if the
// kubeconfig relies on the machine's certificate authorities.
func certificateAuthority(cfg *rest.Config) ([]byte, error) {
	if cfg.Insecure {
		return nil, errors.New("the kubeconfig must have the hub's certificate authority, which agents verify: it has insecure-skip-tls-verify, which does not check the hub's certificate")
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
