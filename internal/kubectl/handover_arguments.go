// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/placement/handover"
)

// objectArgument is an argument NAMESPACE, NAMESPACE/KIND or NAMESPACE/KIND/NAME.
type objectArgument struct {
	namespace, kind, name string
}

// parseObjectArguments parses arguments that name objects, all objects of a kind, or all of a namespace.
func parseObjectArguments(cmd *cobra.Command, args []string) ([]objectArgument, error) {
	var parsed []objectArgument
	for _, arg := range args {
		words := strings.Split(arg, "/")
		if len(words) > 3 || slices.Contains(words, "") {
			return nil, fmt.Errorf("%s: %q must be NAMESPACE, NAMESPACE/KIND or NAMESPACE/KIND/NAME, such as shop/deployment/web", cmd.CommandPath(), arg)
		}
		words = append(words, "", "")
		parsed = append(parsed, objectArgument{namespace: words[0], kind: words[1], name: words[2]})
	}
	if len(parsed) == 0 {
		return nil, fmt.Errorf("%s: give one or several NAMESPACE, NAMESPACE/KIND or NAMESPACE/KIND/NAME, such as shop/deployment/web", cmd.CommandPath())
	}
	return parsed, nil
}

// selectedObjects are the objects of a cluster that arguments select.
type selectedObjects struct {
	objects []*unstructured.Unstructured
	named   map[*unstructured.Unstructured]bool // those that an argument names itself
}

// selectObjects reads the objects of a cluster that arguments select, each once, dependencies first.
func selectObjects(ctx context.Context, f *factory, c client.Reader, arguments []objectArgument) (*selectedObjects, error) {
	s := &selectedObjects{named: map[*unstructured.Unstructured]bool{}}
	for _, a := range arguments {
		kinds, err := kindsOf(f, a)
		if err != nil {
			return nil, err
		}
		if err := c.Get(ctx, client.ObjectKey{Name: a.namespace}, &corev1.Namespace{}); err != nil {
			return nil, fmt.Errorf("read Namespace %s of the cluster: %w", a.namespace, err)
		}
		for _, gvk := range kinds {
			found, err := readObjects(ctx, c, gvk, a)
			if err != nil {
				return nil, err
			}
			for i := range found {
				s.add(&found[i], a.name != "")
			}
		}
	}
	slices.SortStableFunc(s.objects, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(
			cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(importRank(a.GroupVersionKind().GroupKind()), importRank(b.GroupVersionKind().GroupKind())),
			cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetName(), b.GetName()),
		)
	})
	return s, nil
}

// add adds an object, unless it is selected already.
func (s *selectedObjects) add(o *unstructured.Unstructured, named bool) {
	same := func(e *unstructured.Unstructured) bool { return e.GetUID() == o.GetUID() }
	if at := slices.IndexFunc(s.objects, same); at >= 0 {
		s.named[s.objects[at]] = s.named[s.objects[at]] || named
		return
	}
	s.objects = append(s.objects, o)
	s.named[o] = named
}

// importRank orders kinds: what Pods name comes before workloads.
func importRank(kind schema.GroupKind) int {
	switch {
	case kind == schema.GroupKind{Kind: "ServiceAccount"}:
		return 0
	case kind.Group == "apps", kind.Group == "batch", kind == schema.GroupKind{Kind: "Pod"}, kind == schema.GroupKind{Kind: "ReplicationController"}:
		return 2
	}
	return 1
}

// kindsOf returns the kinds of an argument: the one that it names, or all placeable ones that the cluster
// serves in namespaces.
func kindsOf(f *factory, a objectArgument) ([]schema.GroupVersionKind, error) {
	if a.kind != "" {
		mapper, err := f.config.ToRESTMapper()
		if err != nil {
			return nil, fmt.Errorf("create discovery client: %w", err)
		}
		mapping, err := findMapping(mapper, a.kind)
		if err != nil {
			return nil, fmt.Errorf("KIND %s: must be a resource, short name or kind that the cluster serves: %w", a.kind, err)
		}
		if mapping.Scope.Name() != "namespace" {
			return nil, fmt.Errorf("KIND %s: must be a kind with namespaces: %s is cluster-scoped", a.kind, mapping.GroupVersionKind.Kind)
		}
		return []schema.GroupVersionKind{mapping.GroupVersionKind}, nil
	}
	d, err := f.config.ToDiscoveryClient()
	if err != nil {
		return nil, fmt.Errorf("create discovery client: %w", err)
	}
	lists, err := discovery.ServerPreferredNamespacedResources(d)
	if err != nil && len(lists) == 0 || err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("list the kinds that the cluster serves: %w", err)
	}
	var found []schema.GroupVersionKind
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("list the kinds that the cluster serves: %w", err)
		}
		for _, r := range list.APIResources {
			if gvk := gv.WithKind(r.Kind); handover.Placeable(gvk.GroupKind()) {
				found = append(found, gvk)
			}
		}
	}
	return found, nil
}

// readObjects reads the objects of a kind that an argument selects.
func readObjects(ctx context.Context, c client.Reader, gvk schema.GroupVersionKind, a objectArgument) ([]unstructured.Unstructured, error) {
	if a.name != "" {
		o := unstructured.Unstructured{}
		o.SetGroupVersionKind(gvk)
		if err := c.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: a.name}, &o); err != nil {
			return nil, fmt.Errorf("read %s: %w", objectName(gvk.Kind, a.namespace, a.name), err)
		}
		return []unstructured.Unstructured{o}, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := c.List(ctx, list, client.InNamespace(a.namespace)); err != nil {
		return nil, fmt.Errorf("list %s in namespace %s: %w", gvk.Kind, a.namespace, err)
	}
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(gvk)
	}
	return list.Items, nil
}

// errSomeRefused is the error of a plan that has objects which cannot be taken over or let go.
var errSomeRefused = errors.New("nothing was changed: see the objects above that are refused, and leave them out or correct what is named")

// completeNamespaceArguments completes arguments of `import` with the namespaces of the cluster.
func (i *importOptions) completeNamespaceArguments(f *factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		inContext := i.context
		if i.kubeconfig == "" {
			inContext = cmp.Or(i.context, i.cluster)
		}
		return f.forCluster(i.kubeconfig, inContext).completeNamespaces(cmd, args, toComplete)
	}
}
