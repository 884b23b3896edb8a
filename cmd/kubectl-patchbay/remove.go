// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/policy"
	"github.com/patchbay-cni/patchbay/placement/render"
)

// newRemove is the verb that orders the removal of an object from its clusters.
func newRemove(ctx context.Context, a *access) *cobra.Command {
	r := &removal{}
	cmd := &cobra.Command{
		Use:   "remove KIND/NAME",
		Short: "Remove an object from all clusters; it stays at the hub",
		Long: "Sets the annotation " + v1alpha1.ClustersAnnotation + " of an object at the hub to the empty value, which\n" +
			"is the order to remove it from all clusters, whatever policies say or said. The object stays at the hub.\n" +
			"Without --yes it lists where the object is, and changes nothing.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, ok := strings.Cut(strings.Join(args, "/"), "/")
			if !ok || name == "" || strings.Contains(name, "/") {
				return fmt.Errorf("%s: give KIND/NAME, such as deployment/web: got %q", cmd.CommandPath(), strings.Join(args, " "))
			}
			c, cfg, err := a.openPlacement()
			if err != nil {
				return err
			}
			namespace, err := a.namespace()
			if err != nil {
				return err
			}
			if err := r.find(ctx, c, cfg, kind, namespace, name); err != nil {
				return err
			}
			return r.run(ctx, c, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&r.yes, "yes", false, "remove it; without it only what would happen is listed")
	flags.BoolVar(&r.wait, "wait", true, "wait until it is removed")
	flags.DurationVar(&r.timeout, "timeout", 5*time.Minute, "how long to wait")
	return cmd
}

// removal is one call of remove.
type removal struct {
	yes, wait bool
	timeout   time.Duration

	object     *metav1.PartialObjectMetadata
	assignment client.ObjectKey
}

// find reads the object. kind is what kubectl takes: a resource, its singular or short name,
// with its group if that is needed.
func (r *removal) find(ctx context.Context, c client.Client, cfg *rest.Config, kind, namespace, name string) error {
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make discovery client: %w", err)
	}
	gvr, gr := schema.ParseResourceArg(strings.ToLower(kind))
	if gvr == nil {
		gvr = &schema.GroupVersionResource{Group: gr.Group, Resource: gr.Resource}
	}
	mapper := restmapper.NewShortcutExpander(c.RESTMapper(), cachedDiscovery{d}, nil)
	gvk, err := mapper.KindFor(*gvr)
	if meta.IsNoMatchError(err) {
		gvk, err = mapper.KindFor(gr.WithVersion(""))
	}
	if err != nil {
		return fmt.Errorf("KIND %s: %w", kind, err)
	}
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return fmt.Errorf("KIND %s: %w", kind, err)
	}
	r.assignment.Namespace = namespace
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		namespace, r.assignment.Namespace = "", v1alpha1.SystemNamespace
	}
	r.assignment.Name = render.Name(gvk.Group, gvk.Kind, namespace, name)
	r.object = &metav1.PartialObjectMetadata{}
	r.object.SetGroupVersionKind(gvk)
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, r.object); err != nil {
		return fmt.Errorf("read %s %s: %w", gvk.Kind, strings.TrimPrefix(namespace+"/"+name, "/"), err)
	}
	return nil
}

// name is for messages.
func (r *removal) name() string {
	return r.object.Kind + " " + strings.TrimPrefix(r.object.Namespace+"/"+r.object.Name, "/")
}

// run lists where the object is, and removes it if that is wanted.
func (r *removal) run(ctx context.Context, c client.Client, out io.Writer) error {
	a := &v1alpha1.Assignment{}
	err := c.Get(ctx, r.assignment, a)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Assignment %s: %w", r.assignment, err)
	}
	if err != nil || len(a.Spec.Targets) == 0 {
		_, err := fmt.Fprintf(out, "%s is in no cluster\n", r.name())
		return err
	}
	what := "deleted"
	if p := a.Spec.Decision.OnDelete; p == v1alpha1.OnDeleteOrphan ||
		p == "" && policy.DefaultOnDelete(r.object.GroupVersionKind().GroupKind()) == v1alpha1.OnDeleteOrphan {
		what = "kept there, and is not managed any more"
	}
	for _, t := range a.Spec.Targets {
		fmt.Fprintf(out, "%s: %s is %s\n", t.Cluster, r.name(), what)
	}
	if !r.yes {
		_, err := fmt.Fprintln(out, "Nothing was changed. To remove it, add --yes")
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": r.object.UID, "resourceVersion": r.object.ResourceVersion, "annotations": map[string]string{v1alpha1.ClustersAnnotation: ""},
	}})
	if err != nil {
		return fmt.Errorf("encode the order for %s: %w", r.name(), err)
	}
	if err := c.Patch(ctx, r.object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("order the removal of %s (it is safe to repeat): %w", r.name(), err)
	}
	if !r.wait {
		return nil
	}
	return r.await(ctx, c, out)
}

// removalPoll is how often it is looked whether an object is removed.
const removalPoll = 500 * time.Millisecond

// await waits until no cluster has the object, and else says what each reports.
func (r *removal) await(ctx context.Context, c client.Client, out io.Writer) error {
	a := &v1alpha1.Assignment{}
	err := wait.PollUntilContextTimeout(ctx, removalPoll, r.timeout, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, r.assignment, a)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return err == nil && len(a.Spec.Targets) == 0, nil
	})
	if err == nil {
		_, err := fmt.Fprintf(out, "%s is removed\n", r.name())
		return err
	}
	left := []error{fmt.Errorf("%s is not removed within %s: %w", r.name(), r.timeout, err)}
	for _, report := range a.Status.Clusters {
		if report.Message != "" {
			left = append(left, fmt.Errorf("%s: %s", report.Cluster, report.Message))
		}
	}
	return errors.Join(left...)
}

// cachedDiscovery asks the API server each time: it is asked once.
type cachedDiscovery struct{ discovery.DiscoveryInterface }

// Fresh implements discovery.CachedDiscoveryInterface.
func (cachedDiscovery) Fresh() bool { return true }

// Invalidate implements discovery.CachedDiscoveryInterface.
func (cachedDiscovery) Invalidate() {}
