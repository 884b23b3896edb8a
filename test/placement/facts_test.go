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

// place is where objects of one kind are.
type place struct {
	cluster, resource, namespace string
	gvk                          schema.GroupVersionKind
}

// readObjects reads what Assignments, Works and records name, and what refusals are about: all of
// a kind in a namespace at once, as a test may have a thousand.
func (f *facts) readObjects(ctx context.Context, w *world) error {
	places := map[place]bool{}
	add := func(cluster string, gvk schema.GroupVersionKind, resource, namespace string) {
		places[place{cluster, resource, namespace, gvk}] = true
	}
	var errs []error
	for _, ns := range f.namespaces {
		for cluster, c := range f.clients(w) {
			o := object("v1", "Namespace", "", ns)
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err == nil {
				f.objects[spot{cluster, keyOf("", "namespaces", "", ns)}] = o
			} else {
				errs = append(errs, client.IgnoreNotFound(err))
			}
			if cluster != "" {
				add(cluster, schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}, "serviceaccounts", ns)
				add(cluster, schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}, "persistentvolumeclaims", ns)
			}
		}
	}
	for _, s := range f.said() {
		if s.assignment != nil {
			o := s.assignment.Spec.Object
			add("", schema.GroupVersionKind{Group: o.Group, Version: o.Version, Kind: o.Kind}, o.Resource, o.Namespace)
		}
		if s.work != nil && w.Clusters[s.work.cluster] != nil {
			for _, m := range s.work.manifests {
				o := manifest(m)
				add(s.work.cluster, o.GroupVersionKind(), m.Resource, o.GetNamespace())
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
			f.objects[spot{p.cluster, keyOf(p.gvk.Group, p.resource, o.GetNamespace(), o.GetName())}] = o
		}
	}
	return errors.Join(errs...)
}

// clients are those of the hub and the clusters.
func (*facts) clients(w *world) map[string]client.Client {
	all := map[string]client.Client{"": w.Hub.Client}
	for name, c := range w.Clusters {
		all[name] = c.Client
	}
	return all
}
