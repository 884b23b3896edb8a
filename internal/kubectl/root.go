// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/version"
)

// Run is the plugin from its arguments to its end.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	log.SetLogger(logr.Discard()) // libraries would say after a while that there is none
	cmd := newRoot(ctx)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return cmd.ExecuteContext(ctx)
}

// newRoot is the command with all verbs, which work until ctx ends.
func newRoot(ctx context.Context) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-patchbay",
		Short: "Ask Patchbay for what no manifest says",
		// How people call it, in usage and help.
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl patchbay"},
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	a := &kubeFlags{rules: clientcmd.NewDefaultClientConfigLoadingRules()}
	a.addFlags(cmd)
	cmd.AddCommand(newIPAM(ctx, a), newHub(ctx, a), newCluster(ctx, a), newRemove(ctx, a))
	return cmd
}

// newIPAM is the verb for addresses.
func newIPAM(ctx context.Context, a *kubeFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ipam",
		Short: "Repair the addresses of networks",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return errors.New("want rebuild or skip; see --help") },
	}
	cmd.AddCommand(newRebuild(ctx, a), newSkip(ctx, a))
	return cmd
}

// newHub is the verb for hubs.
func newHub(ctx context.Context, a *kubeFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hub",
		Short: "Create join tokens, resume after a restore, release objects before an uninstall",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return errors.New("want token, release or resume; see --help") },
	}
	cmd.AddCommand(newToken(ctx, a), newRelease(ctx, a), newResume(ctx, a))
	return cmd
}

// newCluster is the verb for workload clusters.
func newCluster(ctx context.Context, a *kubeFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Join clusters to a hub, and see them",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("want join, leave, accept or list; see --help")
		},
	}
	cmd.AddCommand(newJoin(ctx, a), newLeave(ctx, a), newAccept(ctx, a), newClusterList(ctx, a))
	return cmd
}

// fieldOwner is who we are in managedFields.
const fieldOwner = "kubectl-patchbay"

// kubeFlags is how the cluster is reached: kubectl's own flags and files.
type kubeFlags struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

// addFlags gives a command and those below it the flags.
func (a *kubeFlags) addFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&a.rules.ExplicitPath, "kubeconfig", "", "path of the kubeconfig file")
	clientcmd.BindOverrideFlags(&a.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
}

// openNetworks returns a client, and the namespace that the user is in.
func (a *kubeFlags) openNetworks() (client.Client, string, error) {
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.rules, &a.overrides)
	cfg, err := loaded.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read kubeconfig: %w", err)
	}
	namespace, _, err := loaded.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("read namespace of the kubeconfig: %w", err)
	}
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, "", err
	}
	cfg.QPS = -1 // near a deadline the client's own limit would hide what is waited for
	c, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: kube.NewMapper()})
	if err != nil {
		return nil, "", fmt.Errorf("make client: %w", err)
	}
	return c, namespace, nil
}

// namespace returns the namespace that the user is in.
func (a *kubeFlags) namespace() (string, error) {
	name, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.rules, &a.overrides).Namespace()
	if err != nil {
		return "", fmt.Errorf("read namespace of the kubeconfig: %w", err)
	}
	return name, nil
}

// namespaceFlag returns the namespace that was asked for by flag, if any.
func (a *kubeFlags) namespaceFlag() string { return a.overrides.Context.Namespace }

// openPlacement returns a client that knows placement's kinds and asks the API server for
// all others, and how that API server is reached.
func (a *kubeFlags) openPlacement() (client.WithWatch, *rest.Config, error) {
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.rules, &a.overrides).ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	c, err := newPlacementClient(cfg)
	return c, cfg, err
}

// openPlacementUnthrottled returns such a client that writes as fast as the API server takes it.
func (a *kubeFlags) openPlacementUnthrottled() (client.Client, error) {
	_, cfg, err := a.openPlacement()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	return newPlacementClient(cfg)
}

func newPlacementClient(cfg *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := addPlacementToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}

// addPlacementToScheme registers the kinds that verbs about placement read and write by their types.
func addPlacementToScheme(scheme *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("register kinds: %w", err)
		}
	}
	return nil
}
