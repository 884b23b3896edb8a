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
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// newRemove is the verb `remove`.
func newRemove(f *factory) *cobra.Command {
	r := &removal{}
	cmd := &cobra.Command{
		Use:   "remove KIND/NAME",
		Short: "Remove an object from all clusters and keep it at the hub",
		Long: "Sets the annotation " + v1alpha1.ClustersAnnotation + " of an object at the hub to an empty value. The\n" +
			"empty value removes the object from all clusters, whatever policies select it. The object stays at the\n" +
			"hub. Without --yes the command changes nothing: it prints the clusters that have the object, and the\n" +
			"effect there. With --yes it sets the annotation and waits until no cluster has the object.",
		Example:           "  kubectl patchbay remove deployment/web -n shop\n  kubectl patchbay remove deployments.apps web -n shop --yes --timeout=10m",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: firstArgument(f.placedArguments),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.timeout <= 0 {
				return fmt.Errorf("flag --timeout: must be more than 0, such as 5m: got %v", r.timeout)
			}
			r.command = commandWithYes(cmd, args, "wait", "timeout")
			o, err := f.hubObject(cmd, args)
			if err != nil {
				return err
			}
			if err := r.readObject(cmd.Context(), o.client, o.mapping, o.namespace, o.name); err != nil {
				return err
			}
			return r.run(cmd.Context(), o.client, f.Out)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&r.yes, "yes", false, "order the removal; without this flag the command prints the effects")
	flags.BoolVar(&r.wait, "wait", true, "wait until no cluster has the object")
	flags.DurationVar(&r.timeout, "timeout", 5*time.Minute, "the time to wait")
	return cmd
}

// hubObject is one object at the hub.
type hubObject struct {
	client          client.WithWatch
	mapping         *meta.RESTMapping
	namespace, name string
}

// hubObject returns the object that the arguments of a command name.
func (f *factory) hubObject(cmd *cobra.Command, args []string) (hubObject, error) {
	kind, name, err := parseKindAndName(args)
	if err != nil {
		return hubObject{}, fmt.Errorf("%s: %w", cmd.CommandPath(), err)
	}
	o := hubObject{name: name}
	if o.client, _, err = f.placementClient(); err != nil {
		return hubObject{}, err
	}
	if o.namespace, err = f.namespace(); err != nil {
		return hubObject{}, err
	}
	o.mapping, err = f.restMapping(kind)
	return o, err
}

// parseKindAndName parses KIND/NAME, or KIND and NAME.
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

// restMapping finds the kind of a resource, singular, short name or kind as kubectl does. A group, or
// a version and a group, may follow the word after a dot.
func (f *factory) restMapping(word string) (*meta.RESTMapping, error) {
	mapper, err := f.config.ToRESTMapper()
	if err != nil {
		return nil, fmt.Errorf("create discovery client: %w", err)
	}
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

// removal is one call of `remove`.
type removal struct {
	yes, wait bool
	timeout   time.Duration
	command   string // the same call with --yes

	object     *metav1.PartialObjectMetadata
	assignment client.ObjectKey
	dependents map[v1alpha1.ClusterName]string // by cluster, an object there that depends on this one
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

// objectName returns the name of an object for messages, such as "Deployment shop/web".
func objectName(kind, namespace, name string) string {
	return kind + " " + strings.TrimPrefix(namespace+"/"+name, "/")
}

// name returns the object's name for messages.
func (r *removal) name() string {
	return objectName(r.object.Kind, r.object.Namespace, r.object.Name)
}

// isOrdered reports whether the removal is ordered already.
func (r *removal) isOrdered() bool {
	value, ok := r.object.Annotations[v1alpha1.ClustersAnnotation]
	return ok && strings.TrimSpace(value) == ""
}

// run prints the effects of the removal, and with --yes orders it and waits.
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
	if err != nil && !apierrors.IsForbidden(err) { // a tenant may have no permission for Clusters
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

// findDependents finds the objects of the namespace that depend on this one, by cluster.
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

// isDone reports whether no cluster has the object except those where another object depends on it.
func (r *removal) isDone(a *v1alpha1.Assignment) bool {
	decided := a.Spec.Decision.Source == v1alpha1.SourceAnnotation
	for _, t := range a.Spec.Targets {
		if r.dependents[t.Cluster] == "" || t.State != v1alpha1.TargetActive || !decided {
			return false
		}
	}
	return true
}

// reachableClusters returns for each Cluster whether it is reachable.
func reachableClusters(ctx context.Context, c client.Client) (map[string]bool, error) {
	var list v1alpha1.ClusterList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list Clusters: %w", err)
	}
	reachable := map[string]bool{}
	for i := range list.Items {
		reachable[list.Items[i].Name] = isReachable(&list.Items[i])
	}
	return reachable, nil
}

// print prints the clusters that have the object, and the effect there.
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
		case v1alpha1.TargetActive, v1alpha1.TargetDraining, v1alpha1.TargetLost:
		}
		if dependent := r.dependents[t.Cluster]; dependent != "" && t.State == v1alpha1.TargetActive {
			effect, note = "stays as long as "+dependent+" needs it there", ""
		} else if up, known := reachable[string(t.Cluster)]; known && !up {
			note = " (not reachable: the order reaches it when it is back)"
		}
		fmt.Fprintf(out, "%s: %s %s%s\n", t.Cluster, r.name(), effect, note)
	}
	if len(a.Spec.Targets) == 0 {
		fmt.Fprintf(out, "%s is in no cluster; the order keeps it out of all clusters\n", r.name())
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

// printDependencies names the objects that follow this one.
func (r *removal) printDependencies(out io.Writer, a *v1alpha1.Assignment) {
	var removed, kept []string
	for _, f := range a.Spec.Dependencies {
		name := objectName(f.Kind, a.Namespace, f.Name)
		if v1alpha1.IsVolumeClaim(schema.GroupKind{Group: f.Group, Kind: f.Kind}) {
			kept = append(kept, name)
			continue
		}
		removed = append(removed, name)
	}
	if len(removed) > 0 {
		fmt.Fprintf(out, "Removed after it, unless selected or needed otherwise: %s\n", strings.Join(removed, ", "))
	}
	if len(kept) > 0 {
		fmt.Fprintf(out, "Kept in the clusters: %s\n", strings.Join(kept, ", "))
	}
}

// orderRemoval sets the annotation. The patch is for the version of the object that was read. If the
// object has changed since, orderRemoval reads it again, and orders the removal unless the
// annotation has changed.
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

// waitUntilRemoved waits until no cluster has the object, and returns the last state of the Assignment.
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
	// The hub keeps the Assignment while the annotation is empty, and creates a deleted one again.
	// So the deletion of the Assignment does not mean that the object is removed.
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

// waitError adds to an error of the wait the reasons for which clusters still have the object.
func (r *removal) waitError(err error, a *v1alpha1.Assignment, reachable map[string]bool) error {
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted while waiting: the removal of %s is ordered and continues", r.name())
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%s is not removed within %s; the order stays, and the hub continues", r.name(), r.timeout)
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
