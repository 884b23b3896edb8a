// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// fieldOwner is who we are in managedFields.
const fieldOwner = "kubectl-patchbay"

// newHub is the verb for hubs.
func newHub(ctx context.Context, a *access) *cobra.Command {
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
func newCluster(ctx context.Context, a *access) *cobra.Command {
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

// openPlacement returns a client that knows placement's kinds and asks the API server for
// all others, and how that API server is reached.
func (a *access) openPlacement() (client.WithWatch, *rest.Config, error) {
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.rules, &a.overrides).ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	c, err := placementClient(cfg)
	return c, cfg, err
}

// openUnlimited returns such a client that writes as fast as the API server takes it.
func (a *access) openUnlimited() (client.Client, error) {
	_, cfg, err := a.openPlacement()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	return placementClient(cfg)
}

func placementClient(cfg *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := addPlacement(scheme); err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}

// addPlacement registers the kinds that verbs about placement read and write by their types.
func addPlacement(scheme *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("register kinds: %w", err)
		}
	}
	return nil
}
