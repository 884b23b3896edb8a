// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// snapshot are objects as the API servers of the hub and of the clusters have them.
type snapshot struct {
	now               time.Time
	namespaces        []string // whose objects' conditions are judged
	clusters          []v1alpha1.Cluster
	leases            map[string]coordinationv1.Lease // heartbeats by cluster
	placements        []v1alpha1.Placement
	clusterPlacements []v1alpha1.ClusterPlacement
	customizations    []v1alpha1.Customization
	assignments       []v1alpha1.Assignment
	works             []v1alpha1.Work
	appliedWorks      map[string][]v1alpha1.AppliedWork             // by cluster
	objects           map[objectLocation]*unstructured.Unstructured // by keyOf
}

// concerns tells whether an object belongs to the test.
func (f *snapshot) concerns(namespace, name string) bool {
	return slices.ContainsFunc(f.namespaces, func(ns string) bool { return belongsTo(ns, namespace, name) })
}

func clusterOf(w *v1alpha1.Work) string {
	return strings.TrimPrefix(w.Namespace, v1alpha1.ClusterNamespacePrefix)
}

// keyOf is an object's key as bed.Write has it.
func keyOf(group, resource, namespace, name string) string {
	return group + "/" + resource + " " + namespace + "/" + name
}

// objectKind is where objects of one kind are.
type objectKind struct {
	cluster, resource, namespace string
	gvk                          schema.GroupVersionKind
}

// readObjects reads what Assignments, Works and records name, and what refusals are about: all of
// a kind in a namespace at once, as a test may have a thousand.
func (f *snapshot) readObjects(ctx context.Context, w *world) error {
	places := map[objectKind]bool{}
	add := func(cluster string, gvk schema.GroupVersionKind, resource, namespace string) {
		places[objectKind{cluster, resource, namespace, gvk}] = true
	}
	var errs []error
	for _, ns := range f.namespaces {
		for cluster, c := range f.clients(w) {
			o := object("v1", "Namespace", "", ns)
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err == nil {
				f.objects[objectLocation{cluster, keyOf("", "namespaces", "", ns)}] = o
			} else {
				errs = append(errs, client.IgnoreNotFound(err))
			}
			if cluster != "" {
				add(cluster, schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}, "serviceaccounts", ns)
				add(cluster, schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}, "persistentvolumeclaims", ns)
			}
		}
	}
	for _, s := range f.reportedConditions() {
		if s.assignment != nil {
			o := s.assignment.Spec.Object
			add("", schema.GroupVersionKind{Group: o.Group, Version: o.Version, Kind: o.Kind}, o.Resource, o.Namespace)
		}
		if s.workState != nil && w.Clusters[s.workState.cluster] != nil {
			for _, m := range s.workState.manifests {
				o := manifest(m)
				add(s.workState.cluster, o.GroupVersionKind(), m.Resource, o.GetNamespace())
			}
		}
	}
	for p := range places {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(p.gvk.GroupVersion().WithKind(p.gvk.Kind + "List"))
		if err := f.clients(w)[p.cluster].List(ctx, list, client.InNamespace(p.namespace)); !meta.IsNoMatchError(err) {
			errs = append(errs, client.IgnoreNotFound(err))
		}
		for i := range list.Items {
			o := &list.Items[i]
			f.objects[objectLocation{p.cluster, keyOf(p.gvk.Group, p.resource, o.GetNamespace(), o.GetName())}] = o
		}
	}
	return errors.Join(errs...)
}

// clients are those of the hub and the clusters.
func (*snapshot) clients(w *world) map[string]client.Client {
	all := map[string]client.Client{"": w.Hub.Client}
	for name, c := range w.Clusters {
		all[name] = c.Client
	}
	return all
}

// findFalseConditions judges all conditions, and says why one is not true.
func (f *snapshot) findFalseConditions() map[string]string {
	found := map[string]string{}
	for _, s := range f.reportedConditions() {
		why := "nobody has said how to judge that"
		if is := conditionChecks[s.key()]; is != nil {
			why = is(f, &s)
		} else if uncheckedConditions[s.key()] != "" {
			why = ""
		}
		if why != "" {
			found[s.subject+" says "+s.key()] = why
		}
	}
	return found
}

// reportedConditions are the conditions of all Clusters, and of what concerns the namespaces. What an agent says
// that does not report is left out: it cannot take it back.
func (f *snapshot) reportedConditions() (all []reportedCondition) {
	add := func(s reportedCondition, conditions []metav1.Condition) {
		for _, s.Condition = range conditions {
			if s.cluster == nil || s.Type != v1alpha1.ConditionHubMismatch || f.isAlive(s.cluster.Name) {
				all = append(all, s)
			}
		}
	}
	for i := range f.clusters {
		add(reportedCondition{subject: "Cluster " + f.clusters[i].Name, cluster: &f.clusters[i]}, f.clusters[i].Status.Conditions)
	}
	for i := range f.placements {
		p := &f.placements[i]
		add(reportedCondition{subject: "Placement " + p.Namespace + "/" + p.Name, choice: &p.Spec.Clusters}, p.Status.Conditions)
	}
	for i := range f.clusterPlacements {
		if p := &f.clusterPlacements[i]; f.concerns("", p.Name) {
			add(reportedCondition{subject: "ClusterPlacement " + p.Name, choice: &p.Spec.Clusters}, p.Status.Conditions)
		}
	}
	for i := range f.customizations {
		if c := &f.customizations[i]; f.concerns(c.Namespace, c.Name) || f.concerns("", c.Name) {
			add(reportedCondition{subject: "Customization " + c.Namespace + "/" + c.Name, choice: &v1alpha1.ClusterChoice{}}, c.Status.Conditions)
		}
	}
	for i := range f.assignments {
		if a := &f.assignments[i]; f.concerns(a.Spec.Object.Namespace, a.Spec.Object.Name) {
			add(reportedCondition{subject: "Assignment " + a.Namespace + "/" + a.Name, assignment: a}, a.Status.Conditions)
		}
	}
	for i := range f.works {
		if w := &f.works[i]; f.concerns(w.Spec.Source.Namespace, w.Spec.Source.Name) && f.isAlive(clusterOf(w)) {
			f.reportedWorkConditions(w, add)
		}
	}
	for cluster, records := range f.appliedWorks {
		for i := range records {
			r, spec := &records[i], &records[i].Spec.Work
			if f.concerns(spec.Source.Namespace, spec.Source.Name) && spec.Removal == nil { // an order is answered in the Work
				add(reportedCondition{subject: "AppliedWork " + r.Name + " in " + cluster, workState: &workState{
					cluster: cluster, name: r.Name, spec: spec, revision: r.Status.Revision, manifests: spec.Manifests,
				}}, r.Status.Conditions)
			}
		}
	}
	return all
}

// reportedWorkConditions adds the conditions of a Work and of its manifests. Those of manifests are what was
// said before while the Work orders a removal, or is not carried out.
func (f *snapshot) reportedWorkConditions(w *v1alpha1.Work, add func(reportedCondition, []metav1.Condition)) {
	c := workState{cluster: clusterOf(w), name: w.Name, spec: &w.Spec, revision: w.Status.Revision, manifests: w.Spec.Manifests}
	for i := range w.Status.Manifests {
		c.uids = append(c.uids, w.Status.Manifests[i].UID)
	}
	add(reportedCondition{subject: "Work " + w.Namespace + "/" + w.Name, workState: &c}, w.Status.Conditions)
	if w.Spec.Removal != nil || w.Status.Halted != nil || c.revision != w.Spec.Revision || len(c.uids) != len(c.manifests) {
		return
	}
	for i := range c.uids {
		one := c
		one.manifests, one.uids = c.manifests[i:i+1], c.uids[i:i+1]
		add(reportedCondition{subject: fmt.Sprintf("manifest %d of Work %s/%s", i, w.Namespace, w.Name), workState: &one}, w.Status.Manifests[i].Conditions)
	}
}

// isAlive tells whether a cluster's heartbeat holds.
func (f *snapshot) isAlive(cluster string) bool {
	l := f.leases[cluster].Spec
	return l.RenewTime != nil && l.LeaseDurationSeconds != nil &&
		f.now.Before(l.RenewTime.Add(time.Duration(*l.LeaseDurationSeconds)*time.Second))
}

// countRemaining counts the Assignments and Works of a cluster, and the records that its heartbeat tells of.
func (f *snapshot) countRemaining(cluster string) (n int) {
	for i := range f.assignments {
		if hasTarget(&f.assignments[i], cluster) {
			n++
		}
	}
	for i := range f.works {
		if clusterOf(&f.works[i]) == cluster {
			n++
		}
	}
	recorded, _ := strconv.Atoi(f.remainingRecords(cluster))
	return n + recorded
}

// assignmentsIn are the Assignments with a cluster as target.
func (f *snapshot) assignmentsIn(cluster string) (found []*v1alpha1.Assignment) {
	for i := range f.assignments {
		if hasTarget(&f.assignments[i], cluster) {
			found = append(found, &f.assignments[i])
		}
	}
	return found
}

// countHarmless counts the DaemonSets of a cluster that may be in no other one, and the objects that only they need.
func (f *snapshot) countHarmless(cluster string) (n int) {
	needed, all := map[v1alpha1.DependencyReference]bool{}, f.assignmentsIn(cluster)
	for _, a := range all {
		for _, d := range a.Spec.Dependencies {
			needed[d] = needed[d] || a.Spec.Object.Kind == "DaemonSet"
		}
	}
	for _, a := range all {
		r := a.Spec.Object
		o := f.sourceObject(a)
		pinned := o != nil && r.Kind == "DaemonSet" && len(f.chosenClusters(o)) == 1
		if pinned || needed[v1alpha1.DependencyReference{Group: r.Group, Kind: r.Kind, Name: r.Name}] {
			n++
		}
	}
	return n
}

func (f *snapshot) remainingRecords(cluster string) string {
	lease := f.leases[cluster]
	return lease.Annotations[v1alpha1.AppliedWorksAnnotation]
}

// missingClusters are the clusters of a choice that do not exist.
func (f *snapshot) missingClusters(names ...v1alpha1.ClusterName) []v1alpha1.ClusterName {
	return slices.DeleteFunc(slices.Clone(names), func(name v1alpha1.ClusterName) bool {
		return slices.ContainsFunc(f.clusters, func(c v1alpha1.Cluster) bool { return c.Name == string(name) })
	})
}

// sourceObject is an Assignment's object at the hub; nil when it is not there any more, or is on its way out.
func (f *snapshot) sourceObject(a *v1alpha1.Assignment) *unstructured.Unstructured {
	r := a.Spec.Object
	o := f.objects[objectLocation{"", keyOf(r.Group, r.Resource, r.Namespace, r.Name)}]
	if o == nil || o.GetDeletionTimestamp() != nil || o.GetUID() != r.UID {
		return nil
	}
	return o
}

func selects(selector *metav1.LabelSelector, set map[string]string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(set))
}

// policiesFor are those of the highest rank that select an object, by what messages call them.
func (f *snapshot) policiesFor(o *unstructured.Unstructured) map[string]*v1alpha1.PlacementSpec {
	gvk, namespaced, found := o.GroupVersionKind(), o.GetNamespace() != "", map[string]*v1alpha1.PlacementSpec{}
	add := func(name string, m *metav1.ObjectMeta, spec *v1alpha1.PlacementSpec) {
		if m.DeletionTimestamp == nil && (len(spec.Objects) == 0 && namespaced || slices.ContainsFunc(spec.Objects, func(s v1alpha1.ObjectSelector) bool {
			return (s.Kind == "" && namespaced || s.Kind == gvk.Kind && s.Group == gvk.Group) &&
				(len(s.Names) == 0 || slices.Contains(s.Names, v1alpha1.ObjectName(o.GetName()))) && selects(s.Selector, o.GetLabels())
		})) {
			found[name] = spec
		}
	}
	for i := range f.placements {
		if p := &f.placements[i]; p.Namespace == o.GetNamespace() {
			add("Placement "+p.Namespace+"/"+p.Name, &p.ObjectMeta, &p.Spec)
		}
	}
	if len(found) > 0 {
		return found
	}
	namespace := f.objects[objectLocation{"", keyOf("", "namespaces", "", o.GetNamespace())}]
	for i := range f.clusterPlacements {
		if p := &f.clusterPlacements[i]; !namespaced || namespace != nil && selects(p.Spec.NamespaceSelector, namespace.GetLabels()) {
			add("ClusterPlacement "+p.Name, &p.ObjectMeta, &p.Spec.PlacementSpec)
		}
	}
	return found
}

// clusterChoice is where people want an object, by its annotation or a policy; nil when nobody says.
func (f *snapshot) clusterChoice(o *unstructured.Unstructured) *v1alpha1.ClusterChoice {
	if o == nil {
		return nil
	}
	if text, ok := o.GetAnnotations()[v1alpha1.ClustersAnnotation]; ok {
		c := &v1alpha1.ClusterChoice{}
		for part := range strings.SplitSeq(text, ",") {
			if name, _, _ := strings.Cut(strings.TrimSpace(part), "="); name != "" {
				c.Names = append(c.Names, v1alpha1.ClusterName(name))
			}
		}
		return c
	}
	for _, spec := range f.policiesFor(o) {
		return &spec.Clusters
	}
	return nil
}

// chosenClusters are the Clusters of an object's choice.
func (f *snapshot) chosenClusters(o *unstructured.Unstructured) (found []v1alpha1.Cluster) {
	c := f.clusterChoice(o)
	if c == nil || len(c.Names) == 0 && c.Selector == nil {
		return nil
	}
	for _, one := range f.clusters {
		named := slices.Contains(c.Names, v1alpha1.ClusterName(one.Name))
		if (named || len(c.Names) == 0 && one.Spec.Accepted) && selects(c.Selector, one.Labels) {
			found = append(found, one)
		}
	}
	return found
}

// liveObject is what a cluster has of a manifest; nil for nothing.
func (f *snapshot) liveObject(c *workState, m v1alpha1.Manifest) *unstructured.Unstructured {
	o := manifest(m)
	return f.objects[objectLocation{c.cluster, keyOf(o.GroupVersionKind().Group, m.Resource, o.GetNamespace(), o.GetName())}]
}

// anyLive tells whether what a cluster has of some manifest is so.
func (f *snapshot) anyLive(c *workState, so func(live *unstructured.Unstructured) bool) bool {
	return slices.ContainsFunc(c.manifests, func(m v1alpha1.Manifest) bool {
		o := f.liveObject(c, m)
		return o != nil && so(o)
	})
}

// appliedWork is what a cluster has of a Work; nil for nothing.
func (f *snapshot) appliedWork(cluster, name string) *v1alpha1.AppliedWork {
	all := f.appliedWorks[cluster]
	if i := slices.IndexFunc(all, func(r v1alpha1.AppliedWork) bool { return r.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// mismatchedWork names a Work of a cluster that is behind its record, or just differs from it.
func (f *snapshot) mismatchedWork(s *reportedCondition, differs bool) string {
	var in string
	if s.cluster != nil {
		in = s.cluster.Name
	} else {
		in = s.workState.cluster
	}
	for i := range f.works {
		w, r := &f.works[i], f.appliedWork(in, f.works[i].Name)
		if clusterOf(w) == in && r != nil && (isOlderThanRecord(&w.Spec, &r.Spec.Work) || differs && asJSON(w.Spec) != asJSON(r.Spec.Work)) {
			return w.Name
		}
	}
	return ""
}

// unreadyObject names an object of a Work that is not ready, as kstatus computes it; "" when all are.
func (f *snapshot) unreadyObject(c *workState) string {
	for _, m := range c.manifests {
		o := f.liveObject(c, m)
		if o == nil {
			return m.Resource + " " + manifest(m).GetName() + " is not there"
		}
		if is, err := status.Compute(o); err != nil || is.Status != status.CurrentStatus {
			return fmt.Sprintf("%s %s: %+v, %v", m.Resource, o.GetName(), is, err)
		}
	}
	return ""
}
