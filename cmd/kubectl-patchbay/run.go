// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/objects"
	"github.com/patchbay-cni/patchbay/version"
)

// run is the plugin from its arguments to its end.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
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
	a := &access{rules: clientcmd.NewDefaultClientConfigLoadingRules()}
	a.bind(cmd)
	cmd.AddCommand(newIPAM(ctx, a), newHub(ctx, a), newCluster(ctx, a), newRemove(ctx, a))
	return cmd
}

// access is how the cluster is reached: kubectl's own flags and files.
type access struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

// bind gives a command and those below it the flags.
func (a *access) bind(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&a.rules.ExplicitPath, "kubeconfig", "", "path of the kubeconfig file")
	clientcmd.BindOverrideFlags(&a.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
}

// open returns a client, and the namespace that the user is in.
func (a *access) open() (client.Client, string, error) {
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.rules, &a.overrides)
	cfg, err := loaded.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read kubeconfig: %w", err)
	}
	namespace, _, err := loaded.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("read namespace of the kubeconfig: %w", err)
	}
	scheme, err := objects.NewScheme()
	if err != nil {
		return nil, "", err
	}
	cfg.QPS = -1 // near a deadline the client's own limit would hide what is waited for
	c, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: objects.NewMapper()})
	if err != nil {
		return nil, "", fmt.Errorf("make client: %w", err)
	}
	return c, namespace, nil
}

// namespace returns the namespace that the user is in.
func (a *access) namespace() (string, error) {
	name, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.rules, &a.overrides).Namespace()
	if err != nil {
		return "", fmt.Errorf("read namespace of the kubeconfig: %w", err)
	}
	return name, nil
}

// oneNamespace returns the namespace that was asked for by flag, if any.
func (a *access) oneNamespace() string { return a.overrides.Context.Namespace }
