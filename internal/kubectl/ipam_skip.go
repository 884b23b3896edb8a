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

// newSkip is the verb `ipam skip`.
func newSkip(f *factory) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "skip NODE",
		Short: "Exclude a powered-off node from network recovery",
		Long: "Excludes a node from the recovery of all networks, or of the networks in --namespace. Skip a node\n" +
			"only when its machine is powered off and its Pods have ended: addresses of its Pods that are\n" +
			"recorded only on the node are assigned to other Pods. The command refuses a node that is Ready, or that\n" +
			"it has no right to read (get nodes), unless you add --force.",
		Example:           "  kubectl patchbay ipam skip node-7",
		Args:              exactlyOneArgument("the name of one Node, such as node-7"),
		ValidArgsFunction: firstArgument(f.namesOf(corev1.SchemeGroupVersion.WithKind("Node"))),
		RunE: func(cmd *cobra.Command, args []string) error {
			if wrong := validation.IsDNS1123Subdomain(args[0]); len(wrong) > 0 {
				return fmt.Errorf("node %q: must be the name of a Node: %s", args[0], strings.Join(wrong, "; "))
			}
			c, _, err := f.networkClient()
			if err != nil {
				return err
			}
			if !force {
				if err := checkNodeNotReady(cmd.Context(), c, args[0]); err != nil {
					return err
				}
			}
			return skipNode(cmd.Context(), c, f.namespaceFlag(), args[0], f.Out)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also skip a node that is Ready, or that you have no right to read")
	return cmd
}

// checkNodeNotReady returns an error if the node is Ready: its Pods run, and their addresses would be
// assigned again. So it does if the Node cannot be read, because the node may be Ready.
func checkNodeNotReady(ctx context.Context, c client.Client, name string) error {
	node := &corev1.Node{}
	switch err := c.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("node %s: must not be Ready, and you have no right to check that (get nodes): ask a cluster administrator whether its machine "+
			"is off. If it is, use --force: %w", name, err)
	case err != nil:
		return fmt.Errorf("get Node %s: %w", name, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return fmt.Errorf("node %s is Ready, and its patchbayd reports the node's addresses: check with kubectl -n patchbay-system get pods -o wide "+
				"that it runs. To skip the node and risk duplicate addresses, use --force", name)
		}
	}
	return nil
}

// skipNode excludes a node from all recoveries under way, of one namespace if that is not empty.
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
			_, err = fmt.Fprintf(out, "%s: recovery does not wait for %s any more\n", ref, node)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// networksInRecovery lists the networks in recovery.
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
			return nil, fmt.Errorf("list %ss (with permissions for one namespace only, use --namespace): %w", kind, err)
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

// skipNodeIn adds the node to the skipped nodes of one network's recovery.
func skipNodeIn(ctx context.Context, c client.Client, ref network.Ref, node string) error {
	obj := kube.PartialMetadata(ref.Kind)
	if err := c.Get(ctx, kube.ObjectKey(ref), obj); err != nil {
		return fmt.Errorf("get %s: %w", ref, err)
	}
	return annotate(ctx, c, obj, v1.SkipAnnotation, appendName(obj.Annotations[v1.SkipAnnotation], node))
}

// appendName adds a name to a comma-separated list unless it is there.
func appendName(names, name string) string {
	all := strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ' ' })
	if !slices.Contains(all, name) {
		all = append(all, name)
	}
	return strings.Join(all, ",")
}
