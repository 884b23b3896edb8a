// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/handover"
)

// importedObject is one object of an import.
type importedObject struct {
	live *unstructured.Unstructured
	// forHub is what the command creates at the hub; nil: the hub has the object.
	forHub *unstructured.Unstructured
	// hubUID is the UID of the object at the hub; "" before it is created.
	hubUID types.UID
	// changes are what the adoption changes in the cluster.
	changes []handover.Change
	// done is true when an earlier call has imported it.
	done bool
	// refused is why it cannot be imported; "" if it can.
	refused string
}

func (o *importedObject) name() string {
	return objectName(o.live.GetKind(), o.live.GetNamespace(), o.live.GetName())
}

// skippedObjects are objects of a kind that stay in the cluster for one reason.
type skippedObjects struct {
	kind, why string
	names     []string
}

// importPlan is what an import does.
type importPlan struct {
	cluster string
	// open are namespaces of the cluster that the hub may not write in yet, missing those that the hub lacks.
	open, missing []*corev1.Namespace
	objects       []*importedObject
	skipped       []*skippedObjects
}

// importPlanner makes the plan of an import. It changes nothing at the hub or in the cluster.
type importPlanner struct {
	hub, cluster client.Client
	hubKinds     meta.RESTMapper
	name         string // of the Cluster
	allowRestart bool

	plan       *importPlan
	namespaces map[string]*importNamespace
}

// importNamespace is what an import needs to know of one namespace.
type importNamespace struct {
	atHub       *corev1.Namespace // nil: the hub has none
	autoscalers []unstructured.Unstructured
	local       []v1alpha1.Placement
	global      []v1alpha1.ClusterPlacement
	accounts    map[string]bool // ServiceAccounts as which Pods from the hub may run
}

// Plan returns what an import of the selected objects does.
func (p *importPlanner) Plan(ctx context.Context, selected *selectedObjects) (*importPlan, error) {
	p.plan = &importPlan{cluster: p.name}
	p.namespaces = map[string]*importNamespace{}
	for _, live := range selected.objects {
		why := handover.StaysInCluster(live)
		if why == "" {
			why = p.unknownAtHub(live)
		}
		switch {
		case why == "":
		case selected.named[live]:
			p.plan.objects = append(p.plan.objects, &importedObject{live: live, refused: why})
			continue
		default:
			p.plan.skip(live, why)
			continue
		}
		ns, err := p.namespace(ctx, live.GetNamespace(), selected)
		if err != nil {
			return nil, err
		}
		o, err := p.planObject(ctx, ns, live)
		if err != nil {
			return nil, err
		}
		p.plan.objects = append(p.plan.objects, o)
	}
	return p.plan, nil
}

// skip adds an object that stays in the cluster.
func (p *importPlan) skip(live *unstructured.Unstructured, why string) {
	for _, s := range p.skipped {
		if s.kind == live.GetKind() && s.why == why {
			s.names = append(s.names, live.GetNamespace()+"/"+live.GetName())
			return
		}
	}
	p.skipped = append(p.skipped, &skippedObjects{kind: live.GetKind(), why: why, names: []string{live.GetNamespace() + "/" + live.GetName()}})
}

// unknownAtHub returns why the hub cannot have an object of that kind; "" if it can.
func (p *importPlanner) unknownAtHub(live *unstructured.Unstructured) string {
	gvk := live.GroupVersionKind()
	if _, err := p.hubKinds.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
		return fmt.Sprintf("this hub does not serve %s in version %s", gvk.GroupKind(), gvk.GroupVersion())
	}
	return ""
}

// namespace reads what the import needs to know of a namespace, once.
func (p *importPlanner) namespace(ctx context.Context, name string, selected *selectedObjects) (*importNamespace, error) {
	if ns := p.namespaces[name]; ns != nil {
		return ns, nil
	}
	ns := &importNamespace{accounts: map[string]bool{}}
	there, atHub := &corev1.Namespace{}, &corev1.Namespace{}
	if err := p.cluster.Get(ctx, client.ObjectKey{Name: name}, there); err != nil {
		return nil, fmt.Errorf("read Namespace %s of %s: %w", name, p.name, err)
	}
	switch there.Labels[v1alpha1.AccessLabel] {
	case v1alpha1.AccessOwned, v1alpha1.AccessCreate, v1alpha1.AccessAdopt:
	default:
		p.plan.open = append(p.plan.open, there)
	}
	switch err := p.hub.Get(ctx, client.ObjectKey{Name: name}, atHub); {
	case err == nil:
		ns.atHub = atHub
	case apierrors.IsNotFound(err):
		p.plan.missing = append(p.plan.missing, there)
	default:
		return nil, fmt.Errorf("read Namespace %s of the hub: %w", name, err)
	}
	if err := p.readPolicies(ctx, ns, name); err != nil {
		return nil, err
	}
	autoscalers := &unstructured.UnstructuredList{}
	autoscalers.SetGroupVersionKind(schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscalerList"})
	if err := p.cluster.List(ctx, autoscalers, client.InNamespace(name)); err != nil {
		return nil, fmt.Errorf("list HorizontalPodAutoscalers in namespace %s of %s: %w", name, p.name, err)
	}
	ns.autoscalers = autoscalers.Items
	accounts := &corev1.ServiceAccountList{}
	if err := p.cluster.List(ctx, accounts, client.InNamespace(name)); err != nil {
		return nil, fmt.Errorf("list ServiceAccounts in namespace %s of %s: %w", name, p.name, err)
	}
	for i := range accounts.Items {
		a := &accounts.Items[i]
		imported := slices.ContainsFunc(selected.objects, func(o *unstructured.Unstructured) bool { return o.GetUID() == a.UID })
		ns.accounts[a.Name] = imported || a.Labels[v1alpha1.AccessLabel] == v1alpha1.AccessUse || a.Labels[v1alpha1.ManagedLabel] == "true"
	}
	p.namespaces[name] = ns
	return ns, nil
}

// readPolicies reads the policies of the hub that may select objects of a namespace.
func (p *importPlanner) readPolicies(ctx context.Context, ns *importNamespace, name string) error {
	var local v1alpha1.PlacementList
	if err := p.hub.List(ctx, &local, client.InNamespace(name)); err != nil {
		return fmt.Errorf("list Placements in namespace %s: %w", name, err)
	}
	var global v1alpha1.ClusterPlacementList
	if err := p.hub.List(ctx, &global); err != nil && !apierrors.IsForbidden(err) { // a tenant may have no permission
		return fmt.Errorf("list ClusterPlacements: %w", err)
	}
	ns.local, ns.global = local.Items, global.Items
	return nil
}

// planObject plans the import of one object.
func (p *importPlanner) planObject(ctx context.Context, ns *importNamespace, live *unstructured.Unstructured) (*importedObject, error) {
	o := &importedObject{live: live}
	atHub, err := p.readAtHub(ctx, live)
	if err != nil {
		return nil, err
	}
	if atHub != nil {
		o.hubUID = atHub.GetUID()
	}
	source := handover.SourceUID(live)
	switch {
	case source != "" && (atHub == nil || string(atHub.GetUID()) != source):
		o.refused = "another hub manages it, or this one did: take it over with kubectl patchbay hub resume, or export it there first"
	case source != "":
		_, adopting := atHub.GetAnnotations()[v1alpha1.ConflictAnnotation]
		o.done = !adopting
		return o, nil
	case atHub != nil:
		o.refused = p.refuseExisting(live, atHub)
	default:
		o.forHub = handover.ForHub(live, p.name)
	}
	if o.refused == "" {
		o.refused = p.refuseWorkload(ns, live)
	}
	if o.refused == "" {
		err = p.planAdoption(ctx, ns, o, atHub)
	}
	return o, err
}

// readAtHub reads the object of the hub with the name of a live one; nil if there is none.
func (p *importPlanner) readAtHub(ctx context.Context, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(live.GroupVersionKind())
	err := p.hub.Get(ctx, client.ObjectKeyFromObject(live), o)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of the hub: %w", objectName(live.GetKind(), live.GetNamespace(), live.GetName()), err)
	}
	return o, nil
}

// refuseExisting returns why an object that the hub has already cannot stand for the live one; "" if it can.
func (p *importPlanner) refuseExisting(live, atHub *unstructured.Unstructured) string {
	if atHub.GetDeletionTimestamp() != nil {
		return "the hub has an object with that name, which is being deleted"
	}
	differences := handover.Differences(live, atHub)
	if clusters := atHub.GetAnnotations()[v1alpha1.ClustersAnnotation]; len(differences) == 0 && clusters != p.name {
		return fmt.Sprintf("the hub has it, with metadata.annotations[%s] %q, which must be %q: kubectl annotate --overwrite %s %s -n %s %s=%s",
			v1alpha1.ClustersAnnotation, clusters, p.name, strings.ToLower(live.GetKind()), live.GetName(), live.GetNamespace(), v1alpha1.ClustersAnnotation, p.name)
	}
	if len(differences) == 0 {
		return ""
	}
	lines := []string{"the hub has an object with that name and other content:"}
	for _, d := range differences {
		lines = append(lines, "    "+d.String())
	}
	return strings.Join(lines, "\n")
}

// refuseWorkload returns why the agent could not adopt a workload, or would fight with its autoscaler; "" if it can.
func (p *importPlanner) refuseWorkload(ns *importNamespace, live *unstructured.Unstructured) string {
	if account := handover.ServiceAccount(live); account != "" && !ns.accounts[account] {
		return fmt.Sprintf("its Pods run as ServiceAccount %s, which must be imported, too, or get the label %s=%s in the cluster", account, v1alpha1.AccessLabel, v1alpha1.AccessUse)
	}
	for i := range ns.autoscalers {
		target, _, _ := unstructured.NestedStringMap(ns.autoscalers[i].Object, "spec", "scaleTargetRef")
		gvk := schema.FromAPIVersionAndKind(target["apiVersion"], target["kind"])
		if gvk.GroupKind() != live.GroupVersionKind().GroupKind() || target["name"] != live.GetName() {
			continue
		}
		var labels map[string]string
		if ns.atHub != nil {
			labels = ns.atHub.Labels
		}
		if !handover.YieldsReplicas(handover.ForHub(live, p.name), labels, ns.local, ns.global) {
			return fmt.Sprintf("HorizontalPodAutoscaler %s scales it: first create a Placement at the hub that selects it, with apply.yield: [spec.replicas]", ns.autoscalers[i].GetName())
		}
	}
	return ""
}

// planAdoption asks the hub for the object that it would store, and the cluster for what the agent's apply of that
// would change, both by a dry run.
func (p *importPlanner) planAdoption(ctx context.Context, ns *importNamespace, o *importedObject, atHub *unstructured.Unstructured) error {
	stored := atHub
	if stored == nil {
		stored = o.forHub.DeepCopy()
		if ns.atHub != nil {
			o.refused = p.tryAtHub(ctx, stored)
		}
		if o.refused != "" {
			return nil
		}
	}
	after := handover.Manifest(stored, o.live.GetUID())
	err := p.cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(after), client.DryRunAll, client.FieldOwner(v1alpha1.AgentFieldManager))
	switch {
	case apierrors.IsConflict(err):
		o.refused = "the adoption would change fields of other field managers: " + err.Error()
		return nil
	case apierrors.IsInvalid(err):
		o.refused = "the cluster does not accept what the agent would apply: " + err.Error()
		return nil
	case err != nil:
		return fmt.Errorf("apply %s in %s (a dry run): %w", o.name(), p.name, err)
	}
	o.changes = handover.Adoption(o.live, after)
	restarts := func(c handover.Change) bool {
		return handover.RestartsPods(o.live.GroupVersionKind().GroupKind(), c.Field)
	}
	if slices.ContainsFunc(o.changes, restarts) && !p.allowRestart {
		o.refused = "the adoption would change its Pod template and so restart its Pods (--allow-restart accepts that)"
	}
	return nil
}

// tryAtHub creates an object at the hub by a dry run, and returns why the hub does not accept it; "" if it does. The
// object is then as the hub would store it.
func (p *importPlanner) tryAtHub(ctx context.Context, o *unstructured.Unstructured) string {
	if err := p.hub.Create(ctx, o, client.DryRunAll, client.FieldOwner(fieldOwner)); err != nil {
		return "the hub does not accept it: " + err.Error()
	}
	return ""
}

// isRefused reports whether an object cannot be imported.
func (p *importPlan) isRefused() bool {
	return slices.ContainsFunc(p.objects, func(o *importedObject) bool { return o.refused != "" })
}

// print prints the plan.
func (p *importPlan) print(w io.Writer) error {
	out := bufio.NewWriter(w)
	for _, ns := range p.missing {
		fmt.Fprintf(out, "Namespace %s: is created at the hub\n", ns.Name)
	}
	for _, ns := range p.open {
		fmt.Fprintf(out, "Namespace %s of %s: gets the label %s=%s. What hub users may do in their namespace %s, they may then do there\n",
			ns.Name, p.cluster, v1alpha1.AccessLabel, v1alpha1.AccessCreate, ns.Name)
	}
	for _, o := range p.objects {
		switch {
		case o.refused != "":
			fmt.Fprintf(out, "%s: refused: %s\n", o.name(), o.refused)
		case o.done:
			fmt.Fprintf(out, "%s: is imported already\n", o.name())
			continue
		case o.forHub == nil:
			fmt.Fprintf(out, "%s: is at the hub, and is adopted in %s%s\n", o.name(), p.cluster, unchanged(o.changes, p.cluster))
		default:
			fmt.Fprintf(out, "%s: is created at the hub for %s, and adopted there%s\n", o.name(), p.cluster, unchanged(o.changes, p.cluster))
		}
		for _, c := range o.changes {
			fmt.Fprintf(out, "    %s\n", c)
		}
	}
	for _, s := range p.skipped {
		fmt.Fprintf(out, "stays in %s: %s %s: %s\n", p.cluster, s.kind, joinFirst(s.names, maxSkippedNames), s.why)
	}
	return out.Flush()
}

// maxSkippedNames is how many objects a line names that are not imported.
const maxSkippedNames = 10

// unchanged is the end of a line about an object that the adoption does not change.
func unchanged(changes []handover.Change, cluster string) string {
	if len(changes) > 0 {
		return ", which changes:"
	}
	return "; nothing changes in " + cluster
}

// joinFirst joins the first names, and counts the others.
func joinFirst(names []string, limit int) string {
	if len(names) <= limit {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
}
