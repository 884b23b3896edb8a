// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	danm "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/desiredstate"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// concernedByTraffic returns the objects whose placement depends on a change of a Work that carries traffic: the
// workloads that move, and wait until a cluster has endpoints or has acknowledged that it has none, and the Services on
// a ClusterNetwork.
func (l *objectLister) concernedByTraffic(ctx context.Context, old, now *v1alpha1.Work) (keys []kinds.Key) {
	switch source := old.Spec.Source; {
	case source.Group == danm.GroupName && source.Kind == danm.KindClusterNetwork:
		if old.Spec.Revision != now.Spec.Revision || hasObject(old) != hasObject(now) {
			return l.servicesOn(ctx, source.Name)
		}
	case source.Group == "" && source.Kind == "Service" && changesTraffic(old, now):
		workloads := append(scope.TrafficIndexKeys(old), scope.TrafficIndexKeys(now)...)
		slices.Sort(workloads)
		for _, workload := range slices.Compact(workloads) {
			a := &v1alpha1.Assignment{}
			if l.cached.Get(ctx, client.ObjectKey{Namespace: source.Namespace, Name: workload}, a, client.UnsafeDisableDeepCopy) == nil && desiredstate.IsLeaving(a) {
				keys = append(keys, kinds.KeyOf(a.Spec.Object))
			}
		}
	}
	return keys
}

// changesTraffic reports whether a Work of a Service has other endpoints than before, or has carried out more.
func changesTraffic(old, now *v1alpha1.Work) bool {
	return old.Status.Revision != now.Status.Revision || (old.Status.Halted == nil) != (now.Status.Halted == nil) ||
		scope.IsRemoved(old) != scope.IsRemoved(now) ||
		!equality.Semantic.DeepEqual(old.Spec.Traffic, now.Spec.Traffic) || !equality.Semantic.DeepEqual(old.Status.Traffic, now.Status.Traffic)
}

// hasObject reports whether a cluster has the object of a Work.
func hasObject(w *v1alpha1.Work) bool {
	return len(w.Status.Manifests) > 0 && w.Status.Manifests[0].UID != ""
}

// servicesOf returns the Services that have endpoints of a workload's Pods.
func (l *objectLister) servicesOf(ctx context.Context, workload string) (keys []kinds.Key) {
	var list v1alpha1.WorkList
	if err := l.cached.List(ctx, &list, client.MatchingFields{scope.TrafficIndex: workload}, client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to list Works with endpoints", "work", workload)
	}
	for i := range list.Items {
		keys = append(keys, kinds.KeyOf(list.Items[i].Spec.Source))
	}
	return keys
}

// servicesOn returns the Services on a ClusterNetwork.
func (l *objectLister) servicesOn(ctx context.Context, network string) (keys []kinds.Key) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ServiceList"})
	if err := l.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to list Services")
	}
	for i := range list.Items {
		if o := &list.Items[i]; scope.ServiceNetwork(o) == network {
			keys = append(keys, kinds.Key{GroupKind: schema.GroupKind{Kind: "Service"}, Namespace: o.GetNamespace(), Name: o.GetName()})
		}
	}
	return keys
}
