// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/patchbay-cni/patchbay/internal/invite"
)

// newContext is the verb `context`.
func newContext(f *factory) *cobra.Command {
	return &cobra.Command{
		Use:   "context CLUSTER",
		Short: "Add a context with which kubectl reaches a cluster through the hub",
		Long: "Adds a context HUB/CLUSTER to the kubeconfig, where HUB is the present context. Its address is a path at the hub,\n" +
			"and its credentials are those of the hub. With --namespace it is for one namespace, which needs rights there only.\n" +
			"The cluster's agent must run with --debug-access, and the cluster's RBAC decides what the user patchbay:NAME may do.",
		Example: "  kubectl patchbay context east --namespace=shop\n" +
			"  kubectl --context=hub/east logs -f deployment/web",
		Args:              exactlyOneArgument(clusterArgument),
		ValidArgsFunction: firstArgument(f.clusterNames),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := invite.ValidateClusterName(args[0]); err != nil {
				return err
			}
			loader := f.config.ToRawKubeConfigLoader()
			config, err := loader.RawConfig()
			if err != nil {
				return fmt.Errorf("read kubeconfig: %w", err)
			}
			if *f.config.Context != "" {
				config.CurrentContext = *f.config.Context
			}
			name, err := addClusterContext(&config, args[0], f.namespaceFlag())
			if err != nil {
				return err
			}
			if *f.config.Context != "" { // the flag does not change the present context
				before, err := loader.ConfigAccess().GetStartingConfig()
				if err != nil {
					return fmt.Errorf("read kubeconfig: %w", err)
				}
				config.CurrentContext = before.CurrentContext
			}
			if err := clientcmd.ModifyConfig(loader.ConfigAccess(), config, true); err != nil {
				return fmt.Errorf("write kubeconfig: %w", err)
			}
			_, err = fmt.Fprintf(f.Out, "added the context %s: kubectl --context=%s get pods\n", name, name)
			return err
		},
	}
}

// addClusterContext adds a context for a cluster of the hub of the current context, and returns its name. With a
// namespace it is for this namespace only.
func addClusterContext(config *clientcmdapi.Config, cluster, namespace string) (string, error) {
	hub, ok := config.Contexts[config.CurrentContext]
	if !ok {
		return "", fmt.Errorf("kubeconfig: context %q must exist: give the hub's context with --context", config.CurrentContext)
	}
	server, ok := config.Clusters[hub.Cluster]
	if !ok {
		return "", fmt.Errorf("kubeconfig: context %q: cluster %q must exist", config.CurrentContext, hub.Cluster)
	}
	if strings.Contains(server.Server, debugRoot) {
		return "", fmt.Errorf("kubeconfig: context %q must be the hub's, and it is one of a cluster behind a hub: give the hub's context with --context", config.CurrentContext)
	}
	name := config.CurrentContext + "/" + cluster
	through, in := server.DeepCopy(), hub.DeepCopy()
	through.Server, through.LocationOfOrigin = strings.TrimSuffix(server.Server, "/")+clusterPath(namespace, cluster), ""
	in.Cluster, in.LocationOfOrigin = name, ""
	if namespace != "" {
		in.Namespace = namespace
	}
	config.Clusters[name], config.Contexts[name] = through, in
	return name, nil
}
