// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/render"
)

// byName is the index of Works by their names: one object's Works share it.
const byName = "metadata.name"

// worksOf finds the object's Works in all clusters. They are the cache's: not to be
// changed.
func (p *pass) worksOf(ctx context.Context) (map[string]*v1alpha1.Work, error) {
	var list v1alpha1.WorkList
	if err := p.cached.List(ctx, &list, client.MatchingFields{byName: p.key.record()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Works of %s: %w", p.key, err)
	}
	works := make(map[string]*v1alpha1.Work, len(list.Items))
	for i := range list.Items {
		if cluster, ok := clusterOf(list.Items[i].Namespace); ok {
			works[cluster] = &list.Items[i]
		}
	}
	return works, nil
}

// clusterOf is the cluster whose namespace this is.
func clusterOf(namespace string) (string, bool) {
	return strings.CutPrefix(namespace, v1alpha1.ClusterNamespacePrefix)
}

// gone asks the API server whether a Work that the cache does not have is gone.
func (p *pass) gone(ctx context.Context, cluster string) bool {
	err := p.direct.Get(ctx, p.key.work(cluster), &v1alpha1.Work{})
	return apierrors.IsNotFound(err)
}

// ordered says that the agent has carried out the order to remove.
func ordered(w *v1alpha1.Work) bool {
	c := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionApplied)
	return w.Spec.Removal != nil && w.Status.Revision >= w.Spec.Revision && c != nil && c.Reason == v1alpha1.ReasonOrdered
}

// remove orders the removal, and deletes the Work when that is done.
func (p *pass) remove(ctx context.Context, w *v1alpha1.Work) error {
	if w.Spec.Removal == nil {
		next := w.DeepCopy()
		next.Spec.Revision++
		next.Spec.Removal = &v1alpha1.Removal{Policy: p.record.Spec.Decision.OnDelete, SourceUID: w.Spec.Source.UID}
		if next.Spec.Removal.Policy == "" {
			next.Spec.Removal.Policy = v1alpha1.OnDeleteDelete
		}
		if err := p.direct.Update(ctx, next); err != nil {
			return fmt.Errorf("order removal by Work %s/%s: %w", w.Namespace, w.Name, err)
		}
		return nil
	}
	if !ordered(w) {
		return nil
	}
	err := p.direct.Delete(ctx, w, client.Preconditions{UID: &w.UID, ResourceVersion: &w.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Work %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

// replicasIn is how many replicas a Work asks for.
func replicasIn(w *v1alpha1.Work) (int32, bool) {
	o, err := manifestOf(w)
	if err != nil || o == nil {
		return 0, false
	}
	return render.Replicas(o)
}

// manifestOf reads the manifest of a Work; nil when it has none.
func manifestOf(w *v1alpha1.Work) (*unstructured.Unstructured, error) {
	if len(w.Spec.Manifests) == 0 {
		return nil, nil
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(w.Spec.Manifests[0].Object.Raw); err != nil {
		return nil, fmt.Errorf("read manifest of Work %s/%s: %w", w.Namespace, w.Name, err)
	}
	return o, nil
}
