// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// newIPAM is the verb for addresses.
func newIPAM(ctx context.Context, a *access) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ipam",
		Short: "Repair the addresses of networks",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return errors.New("want rebuild or skip; see --help") },
	}
	cmd.AddCommand(newRebuild(ctx, a), newSkip(ctx, a))
	return cmd
}

// kindOf returns the kind that a user means by its name, plural or short name, with
// or without the API's group.
func kindOf(word string) (string, error) {
	word, _, _ = strings.Cut(strings.ToLower(word), ".")
	switch word {
	case "clusternetwork", "clusternetworks", "cn", "cnet":
		return v1.KindClusterNetwork, nil
	case "tenantnetwork", "tenantnetworks", "tn", "tnet":
		return v1.KindTenantNetwork, nil
	case "danmnet", "danmnets", "dn", "dnet":
		return v1.KindDanmNet, nil
	}
	return "", fmt.Errorf("%q is no kind of network: want clusternetwork, tenantnetwork or danmnet", word)
}

// parseTarget reads KIND/NAME.
func parseTarget(text, namespace string) (network.Ref, error) {
	word, name, ok := strings.Cut(text, "/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return network.Ref{}, fmt.Errorf("%q names no network: want KIND/NAME, such as clusternetwork/storage", text)
	}
	kind, err := kindOf(word)
	if err != nil {
		return network.Ref{}, err
	}
	ref := network.Ref{Kind: kind, Namespace: namespace, Name: name}
	if kind == v1.KindClusterNetwork {
		ref.Namespace = ""
	}
	return ref, nil
}
