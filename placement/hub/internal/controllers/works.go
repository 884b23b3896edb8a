// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// byName is the index of Works by their names: one object's Works share it.
const byName = "metadata.name"

// readWorks finds the object's Works in all clusters, and what they report. They are the
// cache's: not to be changed.
func (p *pass) readWorks(ctx context.Context) error {
	var list v1alpha1.WorkList
	if err := p.cached.List(ctx, &list, client.MatchingFields{byName: p.key.record()}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Works of %s: %w", p.key, err)
	}
	p.works = make(map[string]*v1alpha1.Work, len(list.Items))
	p.facts = make(map[string]facts, len(list.Items))
	for i := range list.Items {
		w := &list.Items[i]
		if cluster, ok := clusterOf(w.Namespace); ok {
			p.works[cluster], p.facts[cluster] = w, factsOf(p.key.GroupKind, w)
		}
	}
	return nil
}

// clusterOf is the cluster whose namespace this is.
func clusterOf(namespace string) (string, bool) {
	return strings.CutPrefix(namespace, v1alpha1.ClusterNamespacePrefix)
}

// gone asks the API server whether a Work that the cache does not have is gone.
func (p *pass) gone(ctx context.Context, cluster string) bool {
	err := p.direct.Get(ctx, p.key.work(cluster), &v1alpha1.Work{})
	if err != nil && !absent(err) {
		p.again(time.Second)
	}
	return absent(err)
}

// removed says that the agent has carried out the order to remove, or that a person has answered
// it with TakeCluster: then the agent reports its object as applied, and keeps it.
func removed(w *v1alpha1.Work) bool {
	c := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionApplied)
	if w.Spec.Removal == nil || c == nil {
		return false
	}
	kept := c.Status == metav1.ConditionTrue && w.Status.Term == w.Spec.Term && w.Spec.Term > 0 && w.Status.Revision == w.Spec.Revision
	return kept || c.Reason == v1alpha1.ReasonRemoved && w.Status.Revision >= w.Spec.Revision
}

// remove orders the removal, and deletes the Work when that is done.
func (p *pass) remove(ctx context.Context, w *v1alpha1.Work) error {
	if w.Spec.Removal == nil {
		s := w.Spec.DeepCopy()
		s.Removal = &v1alpha1.Removal{
			Policy:    p.onDelete(w),
			SourceUID: w.Spec.Source.UID, UIDs: factsOf(p.key.GroupKind, w).uids,
		}
		return p.change(ctx, w, *s)
	}
	if !removed(w) {
		return nil
	}
	if err := p.dropData(ctx, w); err != nil {
		return err
	}
	err := p.direct.Delete(ctx, w, client.Preconditions{UID: &w.UID, ResourceVersion: &w.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Work %s/%s: %w", w.Namespace, w.Name, err)
	}
	p.signer.wrote(client.ObjectKeyFromObject(w), 0)
	return nil
}

// onDelete is what the removal of the object does: what the decision says, else its Work, which
// outlives an Assignment that was lost.
func (p *pass) onDelete(w *v1alpha1.Work) v1alpha1.OnDelete {
	said := p.record.Spec.Decision.OnDelete
	if w != nil {
		said = cmp.Or(said, w.Spec.OnDelete)
	}
	return cmp.Or(said, v1alpha1.DefaultOnDelete(p.key.GroupKind))
}

// change gives a Work another spec, if it has the one that we know. What the agent
// reports meanwhile does not matter.
func (p *pass) change(ctx context.Context, w *v1alpha1.Work, s v1alpha1.WorkSpec) error {
	if err := p.certain(ctx); err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(w)
	switch {
	case w.Spec.Revision < p.signer.last(key):
		return p.older(ctx, w)
	case w.Spec.Term > p.signer.current().number: // another leader has taken over
		return fmt.Errorf("change Work %s: its term %d is later than this leader's: %w", key, w.Spec.Term, errStale)
	}
	s.Revision = w.Spec.Revision + 1
	p.signer.current().sign(&s, v1alpha1.WorkPosition{Term: w.Spec.Term, Revision: w.Spec.Revision}, w.Status.Term)
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": w.UID},
		{"op": "test", "path": "/spec/revision", "value": w.Spec.Revision},
		{"op": "replace", "path": "/spec", "value": s},
	})
	if err != nil {
		return fmt.Errorf("encode Work %s/%s: %w", w.Namespace, w.Name, err)
	}
	p.ordered.Store(true)
	next := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	err = p.direct.Patch(ctx, next, client.RawPatch(types.JSONPatchType, patch))
	if s, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsInvalid(err) && (s.ErrStatus.Details == nil || len(s.ErrStatus.Details.Causes) == 0) {
		err = errStale // a test has failed; a spec that is refused has causes
	}
	if err != nil {
		return fmt.Errorf("change Work %s: %w", key, err)
	}
	p.signer.wrote(key, next.Spec.Revision)
	return nil
}

// older finds out why a Work is older than this leader has left it: the cache is behind, or the
// hub was restored.
func (p *pass) older(ctx context.Context, w *v1alpha1.Work) error {
	key, live := client.ObjectKeyFromObject(w), &v1alpha1.Work{}
	if err := p.direct.Get(ctx, key, live); err != nil {
		return fmt.Errorf("read Work %s: %w", key, err)
	}
	if live.Spec.Revision < p.signer.last(key) {
		return p.restored(ctx, key)
	}
	return errStale
}

// dropAnswer takes the answer off a Work whose agent has carried it out.
func (p *pass) dropAnswer(ctx context.Context, w *v1alpha1.Work) error {
	next := w.DeepCopy()
	delete(next.Annotations, v1alpha1.ResumeAnnotation)
	err := p.direct.Patch(ctx, next, client.MergeFromWithOptions(w, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take the answer off Work %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}
