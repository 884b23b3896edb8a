// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/attachments"
	"github.com/patchbay-cni/patchbay/operator/internal/apply"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

const (
	// pageSize is how many objects the API server sends at once.
	pageSize = 500
	// overdueAfter is how long after its grace period a Pod counts as one that does not end.
	overdueAfter = time.Minute
)

// reader reads the Facts from the API server: a cache might not have what was just applied.
type reader struct {
	client.Reader

	now time.Time
}

// facts reads what the next step depends on.
func (r *reader) facts(ctx context.Context, i *v1alpha1.Installation) (*Facts, error) {
	f := &Facts{}
	f.readAnnotations(i)
	for _, read := range []func(context.Context, *v1alpha1.Installation, *Facts) error{
		r.another, r.attached, r.namespace, r.programs, r.nodes, r.protected, r.definitions,
	} {
		if err := read(ctx, i, f); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// readAnnotations reads how the Installation is to be uninstalled.
func (f *Facts) readAnnotations(i *v1alpha1.Installation) {
	for _, a := range []struct {
		name string
		into *bool
	}{{v1alpha1.ForceUninstallAnnotation, &f.Force}, {v1alpha1.RemoveDefinitionsAnnotation, &f.RemoveDefinitions}} {
		switch value, ok := i.Annotations[a.name]; {
		case value == "true":
			*a.into = true
		case ok && value != "false":
			f.Ignored = append(f.Ignored, fmt.Sprintf("Annotation %s: must be true or false: got %q", a.name, value))
		}
	}
}

// another finds a node daemon that this Installation has not applied: the binding of its rights, whose name is the
// same for all, is for another namespace, or the DaemonSet has no label.
func (r *reader) another(ctx context.Context, _ *v1alpha1.Installation, f *Facts) error {
	binding := &rbacv1.ClusterRoleBinding{}
	if err := r.Get(ctx, client.ObjectKey{Name: daemonName}, binding); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ClusterRoleBinding %s: %w", daemonName, err)
	}
	for _, s := range binding.Subjects {
		if s.Kind == rbacv1.ServiceAccountKind && s.Namespace != render.Namespace {
			f.Another = "ClusterRoleBinding " + daemonName + " is for namespace " + s.Namespace
		}
	}
	return nil
}

func (r *reader) attached(ctx context.Context, _ *v1alpha1.Installation, f *Facts) (err error) {
	f.Attached, err = attachments.List(ctx, r)
	return err
}

// namespace finds out whether the namespace of the programs is being deleted: the operator may have lost its rights
// there.
func (r *reader) namespace(ctx context.Context, _ *v1alpha1.Installation, f *Facts) error {
	list := listOf(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	if err := r.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: render.Namespace}); err != nil {
		return fmt.Errorf("read namespace %s: %w", render.Namespace, err)
	}
	f.NamespaceEnding = len(list.Items) > 0 && list.Items[0].DeletionTimestamp != nil
	return nil
}

// daemonName is the name of the DaemonSet, and of the binding of its rights.
const daemonName = "patchbayd"

// programs reads what was applied, except definitions and namespaces.
func (r *reader) programs(ctx context.Context, i *v1alpha1.Installation, f *Facts) error {
	if err := r.daemonSet(ctx, i, f); err != nil {
		return err
	}
	const rbac, admission = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
	kinds := func(group string, names ...string) []schema.GroupVersionKind {
		var all []schema.GroupVersionKind
		for _, name := range names {
			all = append(all, schema.GroupVersionKind{Group: group, Version: "v1", Kind: name})
		}
		return all
	}
	for _, g := range []struct {
		Group

		kinds []schema.GroupVersionKind
	}{
		// Without the controller, nobody answers the webhooks.
		{Group{Name: "webhooks"}, kinds(admission, "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")},
		{Group{Name: "controller and agent", StopsPrograms: true}, slices.Concat(kinds("apps", "Deployment"), kinds("policy", "PodDisruptionBudget"), kinds("", "Service"))},
		// A program on a node that is cut off must lose its rights before the policies that confine it.
		{Group{Name: "bindings of rights"}, kinds(rbac, "ClusterRoleBinding", "RoleBinding")},
		{Group{Name: "rights"}, slices.Concat(kinds(rbac, "ClusterRole", "Role"), kinds("", "ServiceAccount"))},
		{Group{Name: "policies"}, kinds(admission, "ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy")},
	} {
		if err := r.group(ctx, &g.Group, f.NamespaceEnding, g.kinds...); err != nil {
			return err
		}
		f.Programs = append(f.Programs, g.Group)
	}
	return nil
}

// daemonSet reads the DaemonSet of the node daemon.
func (r *reader) daemonSet(ctx context.Context, i *v1alpha1.Installation, f *Facts) error {
	list := listOf(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"})
	if err := r.List(ctx, list, client.InNamespace(render.Namespace)); err != nil {
		if f.NamespaceEnding && apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("list DaemonSets: %w", err)
	}
	for k := range list.Items {
		switch o := &list.Items[k]; {
		case o.Name != daemonName:
		case !apply.IsApplied(o):
			f.Another = "the operator has not applied the DaemonSet " + daemonName
		default:
			o.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"})
			f.DaemonSet = &DaemonSet{PartialObjectMetadata: *o, Requested: o.Annotations[v1alpha1.CleanUpAnnotation] == string(i.UID)}
		}
	}
	return nil
}

// group reads the objects of some kinds that were applied. While the namespace is being deleted, the operator may have
// no rights there: its objects go with it.
func (r *reader) group(ctx context.Context, g *Group, ending bool, kinds ...schema.GroupVersionKind) error {
	for _, kind := range kinds {
		options := []client.ListOption{client.HasLabels{render.InstallationLabel}}
		if isListedInNamespace(kind.Kind) {
			if ending {
				continue
			}
			options = append(options, client.InNamespace(render.Namespace))
		}
		list := listOf(kind)
		if err := r.List(ctx, list, options...); err != nil {
			return fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			o := list.Items[i]
			o.SetGroupVersionKind(kind)
			switch {
			case ending && o.Namespace == render.Namespace:
			case !apply.IsApplied(&o): // a copy that a user has made has the label only
			case o.DeletionTimestamp != nil:
				g.Ending = append(g.Ending, o)
			default:
				g.Objects = append(g.Objects, o)
			}
		}
	}
	return nil
}

// isListedInNamespace reports whether the operator may list a kind in the programs' namespace only.
func isListedInNamespace(kind string) bool {
	return slices.Contains([]string{"Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"}, kind)
}

func listOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

// nodes reads the Nodes, their daemons and their reports. A Node object that is deleted is not waited for.
func (r *reader) nodes(ctx context.Context, i *v1alpha1.Installation, f *Facts) error {
	daemons, err := r.pods(ctx, f)
	if err != nil {
		return err
	}
	reports, err := r.reports(ctx)
	if err != nil || len(daemons)+len(reports)+len(f.Attached) == 0 {
		return err
	}
	f.Reports = outdated(reports, i)
	f.Stopped = map[string]bool{}
	for k := range f.Attached {
		f.Stopped[f.Attached[k].Node] = true
	}
	list := &corev1.NodeList{}
	for token := ""; ; {
		if err := r.List(ctx, list, client.Limit(pageSize), client.Continue(token)); err != nil {
			return fmt.Errorf("list Nodes: %w", err)
		}
		for k := range list.Items {
			n := newNode(&list.Items[k], daemons, reports, i)
			if n == nil {
				delete(f.Stopped, list.Items[k].Name)
				continue
			}
			n.Overdue = n.Running && isOverdue(daemons[n.Name], r.now)
			f.Nodes = append(f.Nodes, *n)
			if n.Running || !n.CleanedUp || n.UnderPods {
				delete(f.Stopped, n.Name)
			}
		}
		if token = list.Continue; token == "" {
			break
		}
	}
	slices.SortFunc(f.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// outdated returns the NodeNetworks of nodes that are cleaned up. They are removed at the end: to a later
// uninstallation, they would be nodes that do not report, and to the daemons of a later installation, VTEPs.
func outdated(reports map[string]*v1.NodeNetwork, i *v1alpha1.Installation) []metav1.PartialObjectMetadata {
	var all []metav1.PartialObjectMetadata
	for _, name := range slices.Sorted(maps.Keys(reports)) {
		n := &Node{}
		n.read(reports[name], i)
		if !n.CleanedUp || reports[name].DeletionTimestamp != nil {
			continue
		}
		o := metav1.PartialObjectMetadata{ObjectMeta: reports[name].ObjectMeta}
		o.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind("NodeNetwork"))
		all = append(all, o)
	}
	return all
}

// read reads a report. The report to another Installation does not count.
func (n *Node) read(report *v1.NodeNetwork, i *v1alpha1.Installation) {
	c := meta.FindStatusCondition(report.Status.Conditions, v1alpha1.ConditionCleanedUp)
	if c == nil {
		return
	}
	message, ok := v1alpha1.CutCleanUpMessage(i.UID, c.Message)
	if !ok {
		return
	}
	n.Message, n.CleanedUp = message, c.Status == metav1.ConditionTrue
	n.UnderPods = n.CleanedUp && c.Reason == v1alpha1.ReasonCleanedUpUnderPods
}

// newNode returns a node that has a daemon, or a report of its own: one of an earlier Node object does not count.
func newNode(o *corev1.Node, daemons map[string]*corev1.Pod, reports map[string]*v1.NodeNetwork, i *v1alpha1.Installation) *Node {
	n := &Node{Name: o.Name, Running: daemons[o.Name] != nil}
	for _, c := range o.Status.Conditions {
		n.Ready = n.Ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	report := reports[o.Name]
	if report != nil && len(report.OwnerReferences) > 0 && !slices.ContainsFunc(report.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == o.UID }) {
		report = nil
	}
	if report == nil {
		if !n.Running {
			return nil
		}
		return n
	}
	n.read(report, i)
	return n
}

// isOverdue reports whether a Pod takes too long to end.
func isOverdue(pod *corev1.Pod, now time.Time) bool {
	return pod.DeletionTimestamp != nil && now.After(pod.DeletionTimestamp.Add(overdueAfter))
}

// pods returns the node daemons by node, and records the Pods of the other programs. The Pods of a Deployment that
// take too long are not waited for: they lose their rights.
func (r *reader) pods(ctx context.Context, f *Facts) (map[string]*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := r.List(ctx, list, client.InNamespace(render.Namespace)); err != nil {
		if f.NamespaceEnding && apierrors.IsForbidden(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("list Pods of the programs: %w", err)
	}
	daemons := map[string]*corev1.Pod{}
	for i := range list.Items {
		pod := &list.Items[i]
		switch pod.Labels["app.kubernetes.io/name"] {
		case daemonName:
			daemons[pod.Spec.NodeName] = pod
		case "patchbay-controller", "patchbay-agent":
			if !isOverdue(pod, r.now) && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				f.ProgramPods = append(f.ProgramPods, pod.Name)
			}
		}
	}
	delete(daemons, "") // not scheduled
	return daemons, nil
}

// reports returns the NodeNetworks by name.
func (r *reader) reports(ctx context.Context) (map[string]*v1.NodeNetwork, error) {
	reports := map[string]*v1.NodeNetwork{}
	for token := ""; ; {
		list := &v1.NodeNetworkList{}
		err := r.List(ctx, list, client.Limit(pageSize), client.Continue(token))
		if isMissing, err := attachments.IsMissingKind(ctx, r, "nodenetworks", err); isMissing || err != nil {
			return nil, err
		}
		for i := range list.Items {
			reports[list.Items[i].Name] = &list.Items[i]
		}
		if token = list.Continue; token == "" {
			return reports, nil
		}
	}
}

// protected reads the networks with Patchbay's finalizer.
func (r *reader) protected(ctx context.Context, _ *v1alpha1.Installation, f *Facts) error {
	for kind, plural := range map[string]string{v1.KindClusterNetwork: "clusternetworks", v1.KindTenantNetwork: "tenantnetworks", v1.KindDanmNet: "danmnets"} {
		list := listOf(v1.SchemeGroupVersion().WithKind(kind))
		isMissing, err := attachments.IsMissingKind(ctx, r, plural, r.List(ctx, list))
		if err != nil {
			return err
		}
		if isMissing {
			continue
		}
		for i := range list.Items {
			if o := list.Items[i]; slices.Contains(o.Finalizers, v1.InUseFinalizer) {
				o.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(kind))
				f.Protected = append(f.Protected, o)
			}
		}
	}
	return nil
}

// definitions reads the CustomResourceDefinitions that were applied, if they are to be deleted.
func (r *reader) definitions(ctx context.Context, _ *v1alpha1.Installation, f *Facts) error {
	if !f.RemoveDefinitions {
		return nil
	}
	g := Group{}
	err := r.group(ctx, &g, false, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	f.Definitions = slices.Concat(g.Objects, g.Ending)
	return err
}
