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
// written by nobody: the watcher judges what comes after.
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
	ours := func(cluster, resource string, o client.Object) {
		fields, convertErr := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		err = errors.Join(err, convertErr)
		add(cluster, v1alpha1.GroupName, resource, unstructured.Unstructured{Object: fields})
	}
	for i := range f.clusters {
		ours("", "clusters", &f.clusters[i])
	}
	for i := range f.placements {
		ours("", "placements", &f.placements[i])
	}
	for i := range f.everywhere {
		ours("", "clusterplacements", &f.everywhere[i])
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
			ours("", "assignments", &f.assignments[i])
		}
	}
	for i := range f.works {
		if s := f.works[i].Spec.Source; f.concerns(s.Namespace, s.Name) {
			ours("", "works", &f.works[i])
		}
	}
	for cluster, records := range f.records {
		for i := range records {
			if s := records[i].Spec.Work.Source; f.concerns(s.Namespace, s.Name) {
				ours(cluster, "appliedworks", &records[i])
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// anew judges what was written so far, and begins anew, while the hub's API server is away: it is
// replaced by what it was then, and the resourceVersions of its objects go back. The clusters are
// what they are now.
func (x *watcher) anew(t *testing.T, then, now []write) {
	t.Helper()
	x.read(t)
	for _, what := range x.broken() {
		t.Error(what)
	}
	now = x.newest(now)
	x.all = nil
	at := time.Now()
	for _, hub := range []bool{true, false} {
		for _, one := range map[bool][]write{true: then, false: now}[hub] {
			if one.Time = at; (one.cluster == "") == hub {
				x.all = append(x.all, one)
			}
		}
	}
}

// newest is what was live, with what was written since it was read: controllers go on meanwhile.
func (x *watcher) newest(live []write) []write {
	all := slices.Clone(live)
	for i := range all {
		for _, one := range x.all {
			if one.cluster == all[i].cluster && one.Key() == all[i].Key() && one.Subresource != "scale" && one.version() > all[i].version() {
				all[i].Object = one.Object
			}
		}
	}
	return all
}
