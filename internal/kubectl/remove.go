// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// newRemove is the verb that orders the removal of an object from its clusters.
func newRemove(ctx context.Context, a *kubeFlags) *cobra.Command {
	r := &removal{}
	cmd := &cobra.Command{
		Use:   "remove KIND/NAME",
		Short: "Remove an object from all clusters; it stays at the hub",
		Long: "Sets the annotation " + v1alpha1.ClustersAnnotation + " of an object at the hub to the empty value. That\n" +
			"is the order to remove the object from all clusters, whatever policies select it. The object stays at\n" +
			"the hub. Without --yes the command changes nothing: it prints which clusters have the object, and what\n" +
			"happens to it there. With --yes it gives the order and waits until no cluster has the object.",
		Example: "  kubectl patchbay remove deployment/web -n shop\n  kubectl patchbay remove deployments.apps web -n shop --yes --timeout=10m",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, err := parseKindAndName(args)
			if err != nil {
				return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
			}
			if r.timeout <= 0 {
				return fmt.Errorf("flag --timeout: must be more than 0, such as 5m: got %v", r.timeout)
			}
			r.command = commandWithYes(cmd, args, "wait", "timeout")
			c, cfg, err := a.openPlacement()
			if err != nil {
				return err
			}
			namespace, err := a.namespace()
			if err != nil {
				return err
			}
			mapping, err := restMapping(cfg, kind)
			if err != nil {
				return err
			}
			if err := r.readObject(ctx, c, mapping, namespace, name); err != nil {
				return err
			}
			return r.run(ctx, c, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&r.yes, "yes", false, "order the removal; without it the command prints what would happen")
	flags.BoolVar(&r.wait, "wait", true, "wait until no cluster has the object")
	flags.DurationVar(&r.timeout, "timeout", 5*time.Minute, "how long to wait")
	return cmd
}

// parseKindAndName reads KIND/NAME, or KIND NAME.
func parseKindAndName(args []string) (kind, name string, err error) {
	words := args
	if len(args) == 1 {
		words = strings.Split(args[0], "/")
	}
	if len(words) != 2 || words[0] == "" || words[1] == "" || strings.Contains(words[0]+words[1], "/") {
		return "", "", fmt.Errorf("give KIND/NAME of one object, such as deployment/web: got %q", strings.Join(args, " "))
	}
	return words[0], words[1], nil
}

// restMapping finds the kind that a user means as kubectl does: by resource, singular, short name
// or kind, with group, or version and group, behind it where that is needed.
func restMapping(cfg *rest.Config, word string) (*meta.RESTMapping, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // an API server without aggregated discovery is asked about each group
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make discovery client: %w", err)
	}
	cached := memory.NewMemCacheClient(d)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	mapping, err := findMapping(mapper, word)
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("KIND %s: must be a resource, short name or kind that this hub serves: see kubectl api-resources: %w", word, err)
	}
	if err != nil {
		return nil, fmt.Errorf("KIND %s: %w", word, err)
	}
	return mapping, nil
}

func findMapping(mapper meta.RESTMapper, word string) (*meta.RESTMapping, error) {
	gvr, gr := schema.ParseResourceArg(strings.ToLower(word))
	var gvk schema.GroupVersionKind
	err := error(&meta.NoResourceMatchError{PartialResource: gr.WithVersion("")})
	if gvr != nil { // "deployments.v1.apps", but also "ingresses.networking.k8s.io"
		gvk, err = mapper.KindFor(*gvr)
	}
	if meta.IsNoMatchError(err) {
		gvk, err = mapper.KindFor(gr.WithVersion(""))
	}
	if err != nil {
		return nil, err
	}
	return mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
}

// removal is one call of remove.
type removal struct {
	yes, wait bool
	timeout   time.Duration
	command   string // with --yes

	object     *metav1.PartialObjectMetadata
	assignment client.ObjectKey
	dependents map[v1alpha1.ClusterName]string // by cluster, an object there that takes this one along
}

// readObject reads the object.
func (r *removal) readObject(ctx context.Context, c client.Client, mapping *meta.RESTMapping, namespace, name string) error {
	gvk := mapping.GroupVersionKind
	r.assignment.Namespace = namespace
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		namespace, r.assignment.Namespace = "", v1alpha1.SystemNamespace
	}
	r.assignment.Name = v1alpha1.WorkName(gvk.Group, gvk.Kind, namespace, name)
	r.object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	r.object.SetGroupVersionKind(gvk)
	err := c.Get(ctx, client.ObjectKeyFromObject(r.object), r.object)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s does not exist at this hub: %w", objectName(gvk.Kind, namespace, name), err)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", objectName(gvk.Kind, namespace, name), err)
	}
	return nil
}

// objectName names an object in messages, such as "Deployment shop/web".
func objectName(kind, namespace, name string) string {
	return kind + " " + strings.TrimPrefix(namespace+"/"+name, "/")
}

// name names the object in messages.
func (r *removal) name() string {
	return objectName(r.object.Kind, r.object.Namespace, r.object.Name)
}

// isOrdered says that the object has the order already.
func (r *removal) isOrdered() bool {
	value, ok := r.object.Annotations[v1alpha1.ClustersAnnotation]
	return ok && strings.TrimSpace(value) == ""
}

// run prints what the removal does, and with --yes orders it and waits.
func (r *removal) run(ctx context.Context, c client.WithWatch, out io.Writer) error {
	a := &v1alpha1.Assignment{}
	switch err := c.Get(ctx, r.assignment, a); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s has no Assignment (%s): the hub does not place it, so there is nothing to remove", r.name(), r.assignment)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("read Assignment %s: this API server must be a hub: %w", r.assignment, err)
	case err != nil:
		return fmt.Errorf("read Assignment %s: %w", r.assignment, err)
	}
	reachable, err := reachableClusters(ctx, c)
	if err != nil && !apierrors.IsForbidden(err) { // a tenant need not see Clusters
		return err
	}
	if err := r.findDependents(ctx, c); err != nil {
		return err
	}
	if err := r.print(out, a, reachable); err != nil {
		return err
	}
	if r.yes && !r.isOrdered() {
		if err := r.orderRemoval(ctx, c); err != nil {
			return err
		}
	}
	if !r.yes || !r.wait || len(a.Spec.Targets) == 0 {
		return nil
	}
	last, err := r.waitUntilRemoved(ctx, c)
	if err != nil {
		return r.waitError(err, last, reachable)
	}
	var stays []string
	for _, t := range last.Spec.Targets {
		stays = append(stays, fmt.Sprintf("%s (%s)", t.Cluster, r.dependents[t.Cluster]))
	}
	if len(stays) > 0 {
		_, err = fmt.Fprintf(out, "%s stays as long as an object needs it, in %s, and is removed from all other clusters\n", r.name(), strings.Join(stays, ", "))
		return err
	}
	_, err = fmt.Fprintf(out, "%s is removed from all clusters\n", r.name())
	return err
}

// findDependents finds the objects of the namespace that take this one along.
func (r *removal) findDependents(ctx context.Context, c client.Client) error {
	gvk := r.object.GroupVersionKind()
	this := v1alpha1.DependencyReference{Group: gvk.Group, Kind: gvk.Kind, Name: r.object.Name}
	r.dependents = map[v1alpha1.ClusterName]string{}
	if r.object.Namespace == "" {
		return nil
	}
	var list v1alpha1.AssignmentList
	if err := c.List(ctx, &list, client.InNamespace(r.assignment.Namespace)); err != nil {
		return fmt.Errorf("list Assignments in namespace %s: %w", r.assignment.Namespace, err)
	}
	for i := range list.Items {
		a := &list.Items[i]
		if !slices.Contains(a.Spec.Dependencies, this) {
			continue
		}
		for _, t := range a.Spec.Targets {
			r.dependents[t.Cluster] = objectName(a.Spec.Object.Kind, a.Spec.Object.Namespace, a.Spec.Object.Name)
		}
	}
	return nil
}

// isDone says that no cluster has the object any more but those where another one needs it.
func (r *removal) isDone(a *v1alpha1.Assignment) bool {
	decided := a.Spec.Decision.Source == v1alpha1.SourceAnnotation
	for _, t := range a.Spec.Targets {
		if r.dependents[t.Cluster] == "" || t.State != v1alpha1.TargetActive || !decided {
			return false
		}
	}
	return true
}

// reachableClusters says of each Cluster whether it is reachable.
func reachableClusters(ctx context.Context, c client.Client) (map[string]bool, error) {
	var list v1alpha1.ClusterList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list Clusters: %w", err)
	}
	reachable := map[string]bool{}
	for i := range list.Items {
		reachable[list.Items[i].Name] = meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1alpha1.ConditionReachable)
	}
	return reachable, nil
}

// print says which clusters have the object, and what happens to it there.
func (r *removal) print(w io.Writer, a *v1alpha1.Assignment, reachable map[string]bool) error {
	out := bufio.NewWriter(w)
	what := "is deleted"
	if cmp.Or(a.Spec.Decision.OnDelete, v1alpha1.DefaultOnDelete(r.object.GroupVersionKind().GroupKind())) == v1alpha1.OnDeleteOrphan {
		what = "is orphaned: it stays there, and Patchbay does not manage it any more"
	}
	for _, t := range a.Spec.Targets {
		effect, note := what, ""
		switch t.State {
		case v1alpha1.TargetPending:
			effect = "is not there yet, and is not created"
		case v1alpha1.TargetRemoving:
			note = " (the hub has ordered that already)"
		case v1alpha1.TargetActive, v1alpha1.TargetDraining:
		}
		if leader := r.dependents[t.Cluster]; leader != "" && t.State == v1alpha1.TargetActive {
			effect, note = "stays as long as "+leader+" needs it there", ""
		} else if up, known := reachable[string(t.Cluster)]; known && !up {
			note = " (not reachable: the order reaches it when it is back)"
		}
		fmt.Fprintf(out, "%s: %s %s%s\n", t.Cluster, r.name(), effect, note)
	}
	if len(a.Spec.Targets) == 0 {
		fmt.Fprintf(out, "%s is in no cluster; with the order none gets it\n", r.name())
	}
	r.printDependencies(out, a)
	switch {
	case r.isOrdered():
		fmt.Fprintln(out, "The removal is ordered already.")
	case !r.yes:
		fmt.Fprintf(out, "Nothing was changed. To remove it: %s\n", r.command)
	}
	return out.Flush()
}

// printDependencies names what the object takes along.
func (r *removal) printDependencies(out io.Writer, a *v1alpha1.Assignment) {
	var along, stay []string
	for _, f := range a.Spec.Dependencies {
		name := objectName(f.Kind, a.Namespace, f.Name)
		if v1alpha1.IsVolumeClaim(schema.GroupKind{Group: f.Group, Kind: f.Kind}) {
			stay = append(stay, name)
			continue
		}
		along = append(along, name)
	}
	if len(along) > 0 {
		fmt.Fprintf(out, "Removed after it, unless selected or needed otherwise: %s\n", strings.Join(along, ", "))
	}
	if len(stay) > 0 {
		fmt.Fprintf(out, "Kept in the clusters: %s\n", strings.Join(stay, ", "))
	}
}

// orderRemoval sets the annotation. The patch is for the object as it was read; when the object has
// changed since, it is read again, and the order is given if its clusters are still chosen
// the same way.
func (r *removal) orderRemoval(ctx context.Context, c client.Client) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": r.object.UID, "resourceVersion": r.object.ResourceVersion,
			"annotations": map[string]string{v1alpha1.ClustersAnnotation: ""},
		}})
		if err != nil {
			return err
		}
		err = c.Patch(ctx, r.object.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner))
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) { // another UID is invalid, another version a conflict
			return err
		}
		fresh := &metav1.PartialObjectMetadata{}
		fresh.SetGroupVersionKind(r.object.GroupVersionKind())
		if readErr := c.Get(ctx, client.ObjectKeyFromObject(r.object), fresh); readErr != nil {
			return readErr
		}
		was, had := r.object.Annotations[v1alpha1.ClustersAnnotation]
		is, has := fresh.Annotations[v1alpha1.ClustersAnnotation]
		switch {
		case fresh.UID != r.object.UID:
			return errors.New("the object was deleted and created again meanwhile")
		case was != is || had != has:
			return fmt.Errorf("the annotation %s was changed meanwhile", v1alpha1.ClustersAnnotation)
		}
		r.object = fresh
		return err
	})
	if err != nil {
		return fmt.Errorf("order the removal of %s (run the command again without --yes, and compare): %w", r.name(), err)
	}
	return nil
}

// waitUntilRemoved waits until no cluster has the object, and returns the Assignment as it was seen last.
func (r *removal) waitUntilRemoved(ctx context.Context, c client.WithWatch) (*v1alpha1.Assignment, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	options := func(o metav1.ListOptions) []client.ListOption {
		return []client.ListOption{&client.ListOptions{Raw: &o}, client.InNamespace(r.assignment.Namespace), client.MatchingFields{metav1.ObjectNameField: r.assignment.Name}}
	}
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.AssignmentList{}
			return list, c.List(ctx, list, options(o)...)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, &v1alpha1.AssignmentList{}, options(o)...)
		},
	}, c)
	var last *v1alpha1.Assignment
	// The hub keeps the Assignment while the annotation is empty. One that is deleted before it
	// has no targets is made again: that is no sign of the removal.
	_, err := watchtools.UntilWithSync(ctx, lw, &v1alpha1.Assignment{}, nil, func(e watch.Event) (bool, error) {
		a, ok := e.Object.(*v1alpha1.Assignment)
		if ok {
			last = a
		}
		return ok && r.isDone(a), nil
	})
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return last, err
}

// waitError says what keeps the object in its clusters.
func (r *removal) waitError(err error, a *v1alpha1.Assignment, reachable map[string]bool) error {
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted while waiting: the removal of %s is ordered and goes on", r.name())
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%s is not removed within %s; the order stays, and the hub goes on", r.name(), r.timeout)
	default:
		err = fmt.Errorf("wait for the removal of %s, which is ordered: %w", r.name(), err)
	}
	all := []error{err}
	if a == nil {
		return errors.Join(append(all, fmt.Errorf("assignment %s could not be read", r.assignment))...)
	}
	for _, kind := range []string{v1alpha1.ConditionPlaced, v1alpha1.ConditionMoveBlocked} {
		bad := metav1.ConditionFalse
		if kind == v1alpha1.ConditionMoveBlocked {
			bad = metav1.ConditionTrue
		}
		if s := meta.FindStatusCondition(a.Status.Conditions, kind); s != nil && s.Status == bad {
			all = append(all, fmt.Errorf("%s=%s, %s: %s", kind, s.Status, s.Reason, s.Message))
		}
	}
	messages := map[v1alpha1.ClusterName]string{}
	for i := range a.Status.Clusters {
		messages[a.Status.Clusters[i].Cluster] = a.Status.Clusters[i].Message
	}
	for _, t := range a.Spec.Targets {
		up, known := reachable[string(t.Cluster)]
		message := messages[t.Cluster]
		switch {
		case message != "" && known && !up:
			message += " (not reachable: this is its last report)"
		case message != "":
		case known && !up:
			message = "the cluster is not reachable; the order reaches it when it is back"
		case t.State == v1alpha1.TargetRemoving:
			message = "the removal is ordered, and the cluster has not reported it as done"
		default:
			message = fmt.Sprintf("the hub has not ordered the removal yet (%s): check that patchbay-hub runs", t.State)
		}
		all = append(all, fmt.Errorf("%s: %s", t.Cluster, message))
	}
	return errors.Join(all...)
}
