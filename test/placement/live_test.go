// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// seeded is the verb of what is not a write, but was there when the watcher began.
const seeded = "seed"

// live is what the hub and the clusters have now of what the test is about, as if it was just
// written by nobody: the watcher judges what comes after. Of a hub that is without our kinds there is nothing.
func (x *watcher) live(t *testing.T, w *world) []write {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f, err := x.facts(ctx, w)
	if err != nil {
		t.Fatal(err)
	}
	var all []write
	add := func(cluster, group, resource string, o unstructured.Unstructured) {
		all = append(all, write{cluster, bed.Write{
			Time: f.now, Verb: seeded, Group: group, Resource: resource, Namespace: o.GetNamespace(), Name: o.GetName(), Object: o,
		}})
	}
	ours := func(resource string, o client.Object) {
		fields, convertErr := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		err = errors.Join(err, convertErr)
		add("", v1alpha1.GroupName, resource, unstructured.Unstructured{Object: fields})
	}
	for i := range f.clusters {
		ours("clusters", &f.clusters[i])
	}
	for i := range f.placements {
		ours("placements", &f.placements[i])
	}
	for i := range f.everywhere {
		ours("clusterplacements", &f.everywhere[i])
	}
	for at, o := range f.objects {
		if o != nil {
			kind, _, _ := strings.Cut(at.key, " ")
			group, resource, _ := strings.Cut(kind, "/")
			add(at.cluster, group, resource, *o)
		}
	}
	for i := range f.assignments { // after the objects that they are of
		if o := f.assignments[i].Spec.Object; f.concerns(o.Namespace, o.Name) {
			ours("assignments", &f.assignments[i])
		}
	}
	for i := range f.works {
		if s := f.works[i].Spec.Source; f.concerns(s.Namespace, s.Name) {
			ours("works", &f.works[i])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// anew judges what was written so far, and begins anew: the hub is replaced by what it was once,
// and the resourceVersions of its objects go back. There is what the hub had then, and what the
// clusters have.
func (x *watcher) anew(t *testing.T, hub, clusters []write) {
	t.Helper()
	x.read(t)
	for _, what := range x.broken() {
		t.Error(what)
	}
	x.all = nil
	now := time.Now()
	for _, one := range slices.Concat(hub, clusters) {
		one.Time = now
		x.all = append(x.all, one)
	}
}

// hubs are the writes at the hub, or those in clusters.
func hubs(all []write, at bool) []write {
	return slices.DeleteFunc(slices.Clone(all), func(one write) bool { return (one.cluster == "") != at })
}
