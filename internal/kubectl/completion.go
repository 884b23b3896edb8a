// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/kube"
)

// completionTimeout bounds the time in which a shell waits for names from an API server.
const completionTimeout = 3 * time.Second

// registerFlagCompletion completes the values of a flag that the command has.
func registerFlagCompletion(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // the command has no such flag
	}
}

// firstArgument completes the first argument only, with the names that list returns. A failed
// list yields no names: a shell cannot show an error.
func firstArgument(list func(ctx context.Context, toComplete string) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		names, err := list(ctx, toComplete)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, toComplete) })
		directive := cobra.ShellCompDirectiveNoFileComp
		if len(names) == 1 && strings.HasSuffix(names[0], "/") {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return names, directive
	}
}

// flagValue completes a flag with the names that list returns.
func flagValue(list func(ctx context.Context, toComplete string) ([]string, error)) cobra.CompletionFunc {
	complete := firstArgument(list)
	return func(cmd *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return complete(cmd, nil, toComplete)
	}
}

// completeContexts completes --context from the kubeconfig.
func (f *factory) completeContexts(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return flagValue(func(context.Context, string) ([]string, error) {
		raw, err := f.config.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, err
		}
		var names []string
		for name := range raw.Contexts {
			names = append(names, name)
		}
		slices.Sort(names)
		return names, nil
	})(cmd, args, toComplete)
}

// completeNamespaces completes --namespace.
func (f *factory) completeNamespaces(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return flagValue(f.namesOf(corev1.SchemeGroupVersion.WithKind("Namespace")))(cmd, args, toComplete)
}

// completeNodes completes the last name in the list of --nodes.
func (f *factory) completeNodes(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	before := toComplete[:strings.LastIndex(toComplete, ",")+1]
	return flagValue(func(ctx context.Context, _ string) ([]string, error) {
		names, err := f.namesOf(corev1.SchemeGroupVersion.WithKind("Node"))(ctx, "")
		for i := range names {
			names[i] = before + names[i]
		}
		return names, err
	})(cmd, args, toComplete)
}

// namesOf lists the names of a cluster-scoped kind.
func (f *factory) namesOf(gvk schema.GroupVersionKind) func(context.Context, string) ([]string, error) {
	return func(ctx context.Context, _ string) ([]string, error) {
		c, _, err := f.placementClient()
		if err != nil {
			return nil, err
		}
		return listNames(ctx, c, gvk, "")
	}
}

// clusterNames lists the names of the hub's Clusters.
func (f *factory) clusterNames(ctx context.Context, toComplete string) ([]string, error) {
	return f.namesOf(v1alpha1.SchemeGroupVersion().WithKind("Cluster"))(ctx, toComplete)
}

// listNames lists the names of a kind's objects, of all namespaces if namespace is empty.
func listNames(ctx context.Context, c client.Reader, gvk schema.GroupVersionKind, namespace string) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list %ss: %w", gvk.Kind, err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// networkArguments lists the networks of the user's namespace as KIND/NAME, or the kinds as KIND/
// before one is complete.
func (f *factory) networkArguments(ctx context.Context, toComplete string) ([]string, error) {
	word, _, ok := strings.Cut(toComplete, "/")
	if !ok {
		var kinds []string
		for _, kind := range kube.NetworkKinds() {
			kinds = append(kinds, strings.ToLower(kind)+"/")
		}
		return kinds, nil
	}
	kind, err := parseKind(word)
	if err != nil {
		return nil, err
	}
	c, namespace, err := f.networkClient()
	if err != nil {
		return nil, err
	}
	if kind == v1.KindClusterNetwork {
		namespace = ""
	}
	names, err := listNames(ctx, c, v1.SchemeGroupVersion().WithKind(kind), namespace)
	for i := range names {
		names[i] = word + "/" + names[i]
	}
	return names, err
}

// placedArguments lists the placed objects of the user's namespace, and the cluster-scoped ones,
// as KIND/NAME.
func (f *factory) placedArguments(ctx context.Context, _ string) ([]string, error) {
	c, _, err := f.placementClient()
	if err != nil {
		return nil, err
	}
	namespace, err := f.namespace()
	if err != nil {
		return nil, err
	}
	return listPlaced(ctx, c, namespace)
}

func listPlaced(ctx context.Context, c client.Reader, namespace string) ([]string, error) {
	var names []string
	for _, in := range []string{namespace, v1alpha1.SystemNamespace} {
		var list v1alpha1.AssignmentList
		err := c.List(ctx, &list, client.InNamespace(in))
		if err != nil && in == namespace { // a tenant may have no permission for the other one
			return nil, fmt.Errorf("list Assignments in namespace %s: %w", in, err)
		}
		for i := range list.Items {
			o := list.Items[i].Spec.Object
			if in != namespace && o.Namespace != "" {
				continue
			}
			names = append(names, schema.GroupKind{Group: o.Group, Kind: strings.ToLower(o.Kind)}.String()+"/"+o.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// exportArguments lists the namespaces of the hub, or after a slash the placed objects of one, as NAMESPACE/KIND/NAME.
func (f *factory) exportArguments(ctx context.Context, toComplete string) ([]string, error) {
	c, _, err := f.placementClient()
	if err != nil {
		return nil, err
	}
	namespace, _, ok := strings.Cut(toComplete, "/")
	if !ok {
		return listNames(ctx, c, corev1.SchemeGroupVersion.WithKind("Namespace"), "")
	}
	names, err := listPlaced(ctx, c, namespace)
	for i := range names {
		names[i] = namespace + "/" + names[i]
	}
	return names, err
}
