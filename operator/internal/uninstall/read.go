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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/attachments"
	"github.com/patchbay-cni/patchbay/operator/internal/apply"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

// pageSize is how many objects the API server sends at once. A Node or NodeNetwork may have more than 20 KiB.
const pageSize = 100

// reader reads Facts from the API server: a cache might not have what was just applied.
type reader struct {
	client.Client

	installation *v1alpha1.Installation
	now          time.Time
	facts        *Facts

	// done are the facts that were read.
	done map[fact]bool
	// nodes are those that exist, by name.
	nodes map[string]nodeObject
	// workloads reads the Pods of controller and agent, and applied what was applied.
	workloads *workloads
	applied   *appliedObjects
}

// nodeObject is what counts of a Node.
type nodeObject struct {
	uid   types.UID
	ready bool
}

// newReader returns a reader that has read nothing yet.
func newReader(from client.Client, i *v1alpha1.Installation, now time.Time) *reader {
	r := &reader{Client: from, installation: i, now: now, facts: &Facts{}, done: map[fact]bool{}, nodes: map[string]nodeObject{}}
	r.workloads = &workloads{Reader: from, now: now, facts: r.facts, others: map[string]time.Time{}}
	r.facts.readAnnotations(i)
	return r
}

// read reads facts that were not read yet.
func (r *reader) read(ctx context.Context, needed ...fact) error {
	for _, n := range needed {
		if r.done[n] {
			continue
		}
		read := map[fact][]func(context.Context) error{
			installed: {r.another, r.namespace, r.daemonSet},
			attached:  {r.attached},
			daemons:   {r.nodeObjects, r.workloads.deployments, r.pods},
			reported:  {r.reports},
			stopped:   {r.stopped},
			applied:   {r.programs},
			protected: {r.protected},
			defined:   {r.definitions},
		}
		for _, of := range read[n] {
			if err := of(ctx); err != nil {
				return err
			}
		}
		r.done[n] = true
	}
	return nil
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
func (r *reader) another(ctx context.Context) error {
	binding := &rbacv1.ClusterRoleBinding{}
	if err := r.Get(ctx, client.ObjectKey{Name: daemonName}, binding); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ClusterRoleBinding %s: %w", daemonName, err)
	}
	for _, s := range binding.Subjects {
		if s.Kind == rbacv1.ServiceAccountKind && s.Namespace != render.Namespace {
			r.facts.Another = "ClusterRoleBinding " + daemonName + " is for namespace " + s.Namespace
		}
	}
	return nil
}

func (r *reader) attached(ctx context.Context) (err error) {
	r.facts.Attached, err = attachments.List(ctx, r)
	return err
}

// namespace finds out whether the namespace of the programs is being deleted: the operator may have lost its rights
// there.
func (r *reader) namespace(ctx context.Context) error {
	list := listOf(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	if err := r.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: render.Namespace}); err != nil {
		return fmt.Errorf("read namespace %s: %w", render.Namespace, err)
	}
	r.facts.NamespaceEnding = len(list.Items) > 0 && list.Items[0].DeletionTimestamp != nil
	return nil
}

// daemonName is the name of the DaemonSet, and of the binding of its rights.
const daemonName = "patchbayd"

// programs reads what was applied, except definitions and namespaces.
func (r *reader) programs(ctx context.Context) error {
	return r.readApplied(func(a *appliedObjects) (err error) {
		r.facts.Programs, err = a.programs(ctx)
		return err
	})
}

// readApplied reads some of what was applied.
func (r *reader) readApplied(read func(*appliedObjects) error) (err error) {
	if r.applied == nil {
		if r.applied, err = newAppliedObjects(r.Client, r.facts.NamespaceEnding); err != nil {
			return err
		}
	}
	err = read(r.applied)
	r.facts.Denied = r.applied.denied
	return err
}

// daemonSet reads the DaemonSet of the node daemon.
func (r *reader) daemonSet(ctx context.Context) error {
	f := r.facts
	objects, err := listWorkloads(ctx, r, "DaemonSet", f.NamespaceEnding)
	for k := range objects {
		switch o := &objects[k]; {
		case o.Name != daemonName:
		case !apply.IsApplied(o):
			f.Another = "the operator has not applied the DaemonSet " + daemonName
		default:
			o.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"})
			f.DaemonSet = &DaemonSet{PartialObjectMetadata: *o, Requested: o.Annotations[v1alpha1.CleanUpAnnotation] == string(r.installation.UID)}
		}
	}
	return err
}

// nodeObjects reads the Nodes. One that is deleted is not waited for.
func (r *reader) nodeObjects(ctx context.Context) error {
	err := attachments.EachPage(ctx, r, pageSize, func() *corev1.NodeList { return &corev1.NodeList{} }, func(list *corev1.NodeList) {
		for i := range list.Items {
			n := nodeObject{uid: list.Items[i].UID}
			for _, c := range list.Items[i].Status.Conditions {
				n.ready = n.ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			}
			r.nodes[list.Items[i].Name] = n
		}
	})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	return nil
}

// pods reads the nodes with a daemon, and the Pods of the other programs.
func (r *reader) pods(ctx context.Context) error {
	f := r.facts
	running := map[string]*Node{}
	err := attachments.EachPage(ctx, r, pageSize, func() *corev1.PodList { return &corev1.PodList{} }, func(list *corev1.PodList) {
		for i := range list.Items {
			pod := &list.Items[i]
			owner := metav1.GetControllerOf(pod)
			node, exists := r.nodes[pod.Spec.NodeName]
			switch name := pod.Labels["app.kubernetes.io/name"]; {
			case name == controllerName || name == agentName:
				r.workloads.pod(pod, name)
			case name == daemonName && (owner == nil || owner.Kind != "DaemonSet" || owner.Name != daemonName):
				f.Foreign = append(f.Foreign, podOnNode(pod))
			case name == daemonName && exists:
				running[pod.Spec.NodeName] = &Node{Name: pod.Spec.NodeName, Ready: node.ready, Running: true, Overdue: isOverdue(pod, r.now)}
			}
		}
	}, client.InNamespace(render.Namespace))
	if err != nil && (!f.NamespaceEnding || !apierrors.IsForbidden(err)) {
		return fmt.Errorf("list Pods of the programs: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(running)) {
		f.Nodes = append(f.Nodes, *running[name])
	}
	return nil
}

// reports reads the NodeNetworks, and adds the nodes that have no daemon but a report.
func (r *reader) reports(ctx context.Context) error {
	f := r.facts
	known := map[string]*Node{}
	for i := range f.Nodes {
		known[f.Nodes[i].Name] = &f.Nodes[i]
	}
	err := attachments.EachPage(ctx, r, pageSize, func() *v1.NodeNetworkList { return &v1.NodeNetworkList{} }, func(list *v1.NodeNetworkList) {
		for i := range list.Items {
			r.report(&list.Items[i], known)
		}
	})
	if isMissing, err := attachments.IsMissingKind(ctx, r, "nodenetworks", err); isMissing || err != nil {
		return err
	}
	f.Nodes = nil
	for _, name := range slices.Sorted(maps.Keys(known)) {
		f.Nodes = append(f.Nodes, *known[name])
	}
	slices.SortFunc(f.Reports, func(a, b metav1.PartialObjectMetadata) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// report adds a NodeNetwork to the facts. Of one that an earlier Node of the name owns, only an error counts: what it
// names is still on the machine.
func (r *reader) report(report *v1.NodeNetwork, known map[string]*Node) {
	n := Node{Name: report.Name}
	n.read(report, r.installation)
	if n.CleanedUp && report.DeletionTimestamp == nil {
		// They are removed at the end: to a later uninstallation, they would be nodes that do not report, and to the daemons
		// of a later installation, VTEPs.
		o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: report.Name, UID: report.UID}}
		o.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind("NodeNetwork"))
		r.facts.Reports = append(r.facts.Reports, o)
	}
	node, exists := r.nodes[report.Name]
	isOwned := attachments.IsReportOf(report, node.uid)
	if hasFailed := n.Message != "" && !n.CleanedUp; !exists || !isOwned && !hasFailed {
		return
	}
	n.Ready = node.ready
	if running := known[report.Name]; running != nil {
		n.Running, n.Overdue = true, running.Overdue
	}
	known[report.Name] = &n
}

// read reads the conditions of a report. A clean-up for another Installation does not count.
func (n *Node) read(report *v1.NodeNetwork, i *v1alpha1.Installation) {
	n.WithoutDanmEp = attachments.WithoutDanmEp(report)
	c := meta.FindStatusCondition(report.Status.Conditions, v1alpha1.ConditionCleanedUp)
	if c == nil {
		return
	}
	message, ok := v1alpha1.CutCleanUpMessage(i.UID, c.Message)
	if !ok {
		return
	}
	n.Message, n.CleanedUp, n.WithoutDanmEp = attachments.Shorten(message), c.Status == metav1.ConditionTrue, ""
	n.UnderPods = n.CleanedUp && c.Reason == v1alpha1.ReasonCleanedUpUnderPods
}

// stopped finds the hosts of attachments on which no container can run without a Pod.
func (r *reader) stopped(context.Context) error {
	f := r.facts
	f.Stopped = map[string]bool{}
	for i := range f.Attached {
		_, exists := r.nodes[f.Attached[i].Node]
		f.Stopped[f.Attached[i].Node] = !exists
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if _, isHost := f.Stopped[n.Name]; isHost && !n.Running && n.CleanedUp && !n.UnderPods {
			f.Stopped[n.Name] = true
		}
	}
	return nil
}

// protected reads the networks with Patchbay's finalizer.
func (r *reader) protected(ctx context.Context) error {
	for kind, plural := range map[string]string{v1.KindClusterNetwork: "clusternetworks", v1.KindTenantNetwork: "tenantnetworks", v1.KindDanmNet: "danmnets"} {
		kind := v1.SchemeGroupVersion().WithKind(kind)
		err := attachments.EachPage(ctx, r, pageSize, func() *metav1.PartialObjectMetadataList { return listOf(kind) }, func(list *metav1.PartialObjectMetadataList) {
			for i := range list.Items {
				if o := list.Items[i]; slices.Contains(o.Finalizers, v1.InUseFinalizer) {
					o.SetGroupVersionKind(kind)
					o.ManagedFields = nil
					r.facts.Protected = append(r.facts.Protected, o)
				}
			}
		})
		if _, err := attachments.IsMissingKind(ctx, r, plural, err); err != nil {
			return err
		}
	}
	return nil
}

// definitions reads the CustomResourceDefinitions that were applied, if they are to be deleted, and what keeps their objects.
func (r *reader) definitions(ctx context.Context) error {
	f := r.facts
	if !f.RemoveDefinitions {
		return nil
	}
	return r.readApplied(func(a *appliedObjects) (err error) {
		if f.Definitions, err = a.definitions(ctx); err != nil {
			return err
		}
		f.Definitions = slices.DeleteFunc(f.Definitions, r.workloads.needs)
		f.Blocking, err = a.blocking(ctx, f.Definitions)
		return err
	})
}
