// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// newSkip is the verb that leaves a node out of recoveries.
func newSkip(ctx context.Context, a *kubeFlags) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "skip NODE",
		Short: "Leave a node out of the recovery of networks: it is off",
		Long: "Leaves a node out of the recovery of all networks, or with --namespace of those in it. To skip\n" +
			"a node says that its machine is off, and its Pods with it: addresses that they had, and that\n" +
			"nobody else knows of, will be given to others.",
		Example: "  kubectl patchbay ipam skip node-7",
		Args:    exactlyOneArgument("the name of one Node, such as node-7"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if wrong := validation.IsDNS1123Subdomain(args[0]); len(wrong) > 0 {
				return fmt.Errorf("%q is no name of a Node: %s", args[0], strings.Join(wrong, "; "))
			}
			c, _, err := a.openNetworks()
			if err != nil {
				return err
			}
			if !force {
				if err := checkNodeNotReady(ctx, c, args[0]); err != nil {
					return err
				}
			}
			return skipNode(ctx, c, a.namespaceFlag(), args[0], cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also skip a node that is Ready")
	return cmd
}

// checkNodeNotReady refuses a node that is Ready: its Pods run, and what they have would be
// handed out again. Whoever may not read Nodes is not checked.
func checkNodeNotReady(ctx context.Context, c client.Client, name string) error {
	node := &corev1.Node{}
	switch err := c.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("get Node %s: %w", name, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return fmt.Errorf("node %s is Ready: its patchbayd will report by itself (kubectl -n patchbay-system get pods -o wide "+
				"says whether it runs). To give addresses of its Pods to others all the same, use --force", name)
		}
	}
	return nil
}

// skipNode leaves a node out of the recovery of all networks that are in one, of one
// namespace if that is not empty.
func skipNode(ctx context.Context, c client.Client, namespace, node string, out io.Writer) error {
	refs, err := networksInRecovery(ctx, c, namespace)
	if err != nil {
		return err
	}
	if len(refs) == 0 {
		_, err := fmt.Fprintln(out, "no network is in recovery: nothing to skip")
		return err
	}
	var errs []error
	for _, ref := range refs {
		err := skipNodeIn(ctx, c, ref, node)
		if err == nil {
			_, err = fmt.Fprintf(out, "%s: its recovery does not wait for %s\n", ref, node)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// networksInRecovery are the networks in recovery.
func networksInRecovery(ctx context.Context, c client.Client, namespace string) ([]network.Ref, error) {
	var refs []network.Ref
	for _, kind := range kube.NetworkKinds() {
		if namespace != "" && kind == v1.KindClusterNetwork {
			continue
		}
		list, err := kube.NewNetworkList(kind)
		if err != nil {
			return nil, err
		}
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list %ss (a tenant names a --namespace): %w", kind, err)
		}
		err = meta.EachListItem(list, func(item runtime.Object) error {
			if obj, ok := item.(client.Object); ok {
				if status := kube.NetworkStatusOf(obj); status.IPAM != nil && status.IPAM.Recovering != nil {
					refs = append(refs, kube.NetworkRefOf(kind, obj))
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read list of %ss: %w", kind, err)
		}
	}
	return refs, nil
}

// skipNodeIn adds the node to those that one network's recovery does not wait for.
func skipNodeIn(ctx context.Context, c client.Client, ref network.Ref, node string) error {
	obj := kube.PartialMetadata(ref.Kind)
	if err := c.Get(ctx, kube.ObjectKey(ref), obj); err != nil {
		return fmt.Errorf("get %s: %w", ref, err)
	}
	return annotate(ctx, c, obj, v1.SkipAnnotation, appendName(obj.Annotations[v1.SkipAnnotation], node))
}

// appendName adds a name to names with commas between them.
func appendName(names, name string) string {
	all := strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ' ' })
	if !slices.Contains(all, name) {
		all = append(all, name)
	}
	return strings.Join(all, ",")
}
