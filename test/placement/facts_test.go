// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// facts are objects as the API servers of the hub and of the clusters have them.
type facts struct {
	now            time.Time
	namespaces     []string // whose objects' conditions are judged
	clusters       []v1alpha1.Cluster
	leases         map[string]coordinationv1.Lease // heartbeats by cluster
	placements     []v1alpha1.Placement
	everywhere     []v1alpha1.ClusterPlacement
	customizations []v1alpha1.Customization
	assignments    []v1alpha1.Assignment
	works          []v1alpha1.Work
	records        map[string][]v1alpha1.AppliedWork   // by cluster
	objects        map[spot]*unstructured.Unstructured // by keyOf
}

// concerns tells whether an object is in one of the namespaces, or is called as one of them.
func (f *facts) concerns(namespace, name string) bool {
	return slices.Contains(f.namespaces, namespace) || namespace == "" && slices.Contains(f.namespaces, name)
}

func clusterOf(w *v1alpha1.Work) string {
	return strings.TrimPrefix(w.Namespace, v1alpha1.ClusterNamespacePrefix)
}

// keyOf is an object's key as bed.Write has it.
func keyOf(group, resource, namespace, name string) string {
	return group + "/" + resource + " " + namespace + "/" + name
}

// facts reads all that conditions of the test are judged from. Records come before Works: so no
// Work is older than its record because of that.
func (x *watcher) facts(ctx context.Context, w *world) (*facts, error) {
	f := &facts{
		now: time.Now(), namespaces: x.namespaces, leases: map[string]coordinationv1.Lease{},
		records: map[string][]v1alpha1.AppliedWork{}, objects: map[spot]*unstructured.Unstructured{},
	}
	var errs []error
	for cluster, c := range w.Clusters {
		var list v1alpha1.AppliedWorkList
		errs = append(errs, c.Client.List(ctx, &list))
		f.records[cluster] = list.Items
	}
	var clusters v1alpha1.ClusterList
	var leases coordinationv1.LeaseList
	var everywhere v1alpha1.ClusterPlacementList
	var customizations v1alpha1.CustomizationList
	var assignments v1alpha1.AssignmentList
	var works v1alpha1.WorkList
	for _, list := range []client.ObjectList{&works, &assignments, &customizations, &everywhere, &clusters, &leases} {
		errs = append(errs, w.Hub.Client.List(ctx, list))
	}
	f.works, f.assignments, f.customizations, f.everywhere, f.clusters = works.Items, assignments.Items, customizations.Items, everywhere.Items, clusters.Items
	for _, l := range leases.Items {
		if cluster, ok := strings.CutPrefix(l.Namespace, v1alpha1.ClusterNamespacePrefix); ok && l.Name == v1alpha1.HeartbeatLease {
			f.leases[cluster] = l
		}
	}
	for _, ns := range x.namespaces {
		var placements v1alpha1.PlacementList
		errs = append(errs, w.Hub.Client.List(ctx, &placements, client.InNamespace(ns)))
		f.placements = append(f.placements, placements.Items...)
	}
	return f, errors.Join(append(errs, f.readObjects(ctx, w))...)
}

// readObjects reads what Assignments, Works and records name, and what refusals are about.
func (f *facts) readObjects(ctx context.Context, w *world) error {
	var errs []error
	get := func(cluster string, gvk schema.GroupVersionKind, resource, namespace, name string) {
		at := spot{cluster, keyOf(gvk.Group, resource, namespace, name)}
		if _, done := f.objects[at]; done {
			return
		}
		c, o := w.Hub.Client, object(gvk.GroupVersion().String(), gvk.Kind, namespace, name)
		if cluster != "" {
			c = w.Clusters[cluster].Client
		}
		err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
		if f.objects[at] = o; err != nil {
			f.objects[at] = nil
		}
		if !meta.IsNoMatchError(err) {
			errs = append(errs, client.IgnoreNotFound(err))
		}
	}
	list := func(cluster, kind, resource, namespace string) {
		all := &unstructured.UnstructuredList{}
		all.SetAPIVersion("v1")
		all.SetKind(kind + "List")
		errs = append(errs, w.Clusters[cluster].Client.List(ctx, all, client.InNamespace(namespace)))
		for i := range all.Items {
			f.objects[spot{cluster, keyOf("", resource, namespace, all.Items[i].GetName())}] = &all.Items[i]
		}
	}
	for _, ns := range f.namespaces {
		get("", schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "namespaces", "", ns)
		for cluster := range w.Clusters {
			get(cluster, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "namespaces", "", ns)
			list(cluster, "ServiceAccount", "serviceaccounts", ns)
			list(cluster, "PersistentVolumeClaim", "persistentvolumeclaims", ns)
		}
	}
	for _, s := range f.said() {
		if s.assignment != nil {
			o := s.assignment.Spec.Object
			get("", schema.GroupVersionKind{Group: o.Group, Version: o.Version, Kind: o.Kind}, o.Resource, o.Namespace, o.Name)
		}
		if s.work != nil && w.Clusters[s.work.cluster] != nil {
			for _, m := range s.work.manifests {
				o := manifest(m)
				get(s.work.cluster, o.GroupVersionKind(), m.Resource, o.GetNamespace(), o.GetName())
			}
		}
	}
	return errors.Join(errs...)
}
