// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// reviveBy is added to the last revision that is known of a Work that was lost: the
// agent may have seen some later ones.
const reviveBy = 1000

// ordersAtOnce is how many Works of one object are written at a time: as many as it has
// in all but the largest fleets, so that the last order is not behind the first reports.
const ordersAtOnce = 32

// render brings each target's Work to what is asked now, and deletes those whose orders are carried
// out: their targets are gone already, so that a target without its Work has lost it.
func (p *pass) render(ctx context.Context) error {
	for cluster, w := range p.works {
		if removed(w) && !slices.ContainsFunc(p.record.Spec.Targets, isIn(cluster)) {
			if err := p.remove(ctx, w); err != nil {
				return err
			}
		}
	}
	rules, err := p.rules(ctx)
	if err != nil {
		return err
	}
	mistakes := make([]error, len(p.record.Spec.Targets))
	var g errgroup.Group
	g.SetLimit(ordersAtOnce)
	for i := range p.record.Spec.Targets {
		t := &p.record.Spec.Targets[i]
		g.Go(func() (err error) {
			if mistakes[i], err = p.order(ctx, t, rules); mistakes[i] != nil {
				mistakes[i] = fmt.Errorf("for %s: %w", t.Cluster, mistakes[i])
			}
			return err
		})
	}
	err = g.Wait()
	p.saidRendered(errors.Join(mistakes...))
	return err
}

// order brings one target's Work to what is asked now. A mistake is a person's.
func (p *pass) order(ctx context.Context, t *v1alpha1.Target, rules *ruleSet) (mistake, err error) {
	w := p.works[string(t.Cluster)]
	if w != nil && w.Annotations[v1alpha1.ResumeAnnotation] != "" && w.Status.Halted == nil && p.facts[string(t.Cluster)].applied {
		return nil, p.dropAnswer(ctx, w)
	}
	switch {
	case w != nil && (t.State == v1alpha1.TargetRemoving || removed(w) || p.otherLife(w)):
		return nil, p.remove(ctx, w)
	case t.State == v1alpha1.TargetRemoving && p.sent(string(t.Cluster)):
		return nil, p.orderAgain(ctx, string(t.Cluster))
	case t.State == v1alpha1.TargetRemoving, t.State == v1alpha1.TargetPending, p.object == nil:
		return nil, nil
	}
	return p.sync(ctx, t, w, rules)
}

// orderAgain makes a Work anew that was lost with its order, or before it: what the cluster has is
// removed, not forgotten.
func (p *pass) orderAgain(ctx context.Context, cluster string) error {
	if p.clusters[cluster] == nil {
		return nil // gone: nothing can be sent there
	}
	of := p.record.Spec.Object
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: of.Group, Version: of.Version, Kind: of.Kind})
	o.SetNamespace(of.Namespace)
	o.SetName(of.Name)
	raw, err := o.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encode %s: %w", p.key, err)
	}
	return p.create(ctx, cluster, v1alpha1.WorkSpec{
		HubUID: p.signer.current().hub, Source: of, Manifests: []v1alpha1.Manifest{{Object: runtime.RawExtension{Raw: raw}, Resource: of.Resource}},
		Removal: &v1alpha1.Removal{Policy: p.onDelete(nil), SourceUID: of.UID},
	})
}

// otherLife says that a Work carries an earlier object of the same name: that one is
// removed first.
func (p *pass) otherLife(w *v1alpha1.Work) bool {
	return p.object != nil && w.Spec.Source.UID != p.object.GetUID()
}

// sync writes a target's Work if it is not as it should be. A mistake leaves the
// last good manifest, with the replicas that are asked now.
func (p *pass) sync(ctx context.Context, t *v1alpha1.Target, w *v1alpha1.Work, rules *ruleSet) (mistake, err error) {
	cluster, ok := p.clusters[string(t.Cluster)]
	if !ok {
		return nil, nil // gone: nothing can be sent there
	}
	raw, data, mistake := p.manifest(t, cluster, rules)
	generation := p.object.GetGeneration()
	if mistake != nil && w == nil {
		return mistake, nil
	}
	// Nothing else of a Job changes when it is paused: the API server would refuse other
	// completions than its part had.
	if mistake != nil || w != nil && t.RequestedReplicas != nil && render.Pauses(p.object, *t.RequestedReplicas) {
		generation = w.Spec.SourceGeneration
		if raw, err = lastGood(w, t.RequestedReplicas); err != nil {
			return mistake, err
		}
	}
	s := v1alpha1.WorkSpec{}
	if w != nil {
		s = *w.Spec.DeepCopy()
		s.Removal = nil // an order that is not carried out is taken back
	}
	if s.PodSecurity, err = p.podSecurity(ctx); err != nil {
		return mistake, err
	}
	m := v1alpha1.Manifest{Object: runtime.RawExtension{Raw: raw}, Resource: p.kind.resource}
	switch {
	case !p.key.isSecret():
	case mistake != nil:
		m.Secret = s.Manifests[0].Secret
	default:
		if m.Secret, err = p.sendData(ctx, string(t.Cluster), data); err != nil {
			return nil, err
		}
	}
	s.SourceGeneration, s.Manifests = generation, []v1alpha1.Manifest{m}
	return mistake, p.put(ctx, w, t, s)
}

// podSecurity returns the Pod Security levels of the object's namespace, which go with it.
func (p *pass) podSecurity(ctx context.Context) (map[string]v1alpha1.PodSecurityLevel, error) {
	labels, err := p.namespaceLabels(ctx, p.cached)
	if err != nil {
		return nil, err
	}
	var levels map[string]v1alpha1.PodSecurityLevel
	for _, mode := range []string{"enforce", "warn", "audit"} {
		switch level := v1alpha1.PodSecurityLevel(labels["pod-security.kubernetes.io/"+mode]); level {
		case v1alpha1.PodSecurityPrivileged, v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted:
			if levels == nil {
				levels = map[string]v1alpha1.PodSecurityLevel{}
			}
			levels[mode] = level
		}
	}
	return levels, nil
}

// put creates the Work or updates it.
func (p *pass) put(ctx context.Context, w *v1alpha1.Work, t *v1alpha1.Target, s v1alpha1.WorkSpec) error {
	s.HubUID, s.Source, s.OnDelete = p.signer.current().hub, p.reference(), p.record.Spec.Decision.OnDelete
	if p.wish != nil && (w == nil || !p.restLost) {
		s.Apply, s.Associated = p.wish.Spec.Apply, p.wish.Spec.Status.Associated
	}
	if w != nil {
		if sameSpec(&w.Spec, &s) {
			return nil
		}
		return p.change(ctx, w, s)
	}
	return p.create(ctx, string(t.Cluster), s)
}

// create creates a cluster's Work, at a later revision than it had if it was lost.
func (p *pass) create(ctx context.Context, cluster string, s v1alpha1.WorkSpec) error {
	if err := p.certain(ctx); err != nil {
		return err
	}
	key := p.key.work(cluster)
	if p.signer.last(key) > 0 {
		return p.missing(ctx, key)
	}
	before, now := p.lastPosition(cluster), p.signer.current()
	if s.Revision = 1; before.Revision > 0 { // it was lost
		s.Revision = before.Revision + reviveBy
		before.Revision = s.Revision
	} else {
		before.Term = now.number
	}
	now.sign(&s, before, 0)
	p.ordered.Store(true)
	err := p.direct.Create(ctx, &v1alpha1.Work{Spec: s, ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{v1alpha1.SourceUIDLabel: string(s.Source.UID)},
	}})
	if apierrors.IsNotFound(err) {
		err = errNoNamespace
	}
	if err != nil {
		return fmt.Errorf("create Work %s: %w", key, err)
	}
	p.signer.wrote(key, s.Revision)
	return nil
}

// missing finds out why a Work is missing that this leader has written: the cache is behind, or
// the Work was deleted by somebody, or the hub was restored.
func (p *pass) missing(ctx context.Context, key client.ObjectKey) error {
	err := p.direct.Get(ctx, key, &v1alpha1.Work{})
	if absent(err) {
		return p.restored(ctx, key)
	}
	if err != nil {
		return fmt.Errorf("read Work %s: %w", key, err)
	}
	return errStale
}

// lastPosition is what a cluster's Work last had, as far as is known.
func (p *pass) lastPosition(cluster string) v1alpha1.WorkPosition {
	for _, c := range p.record.Status.Clusters {
		if string(c.Cluster) == cluster {
			return v1alpha1.WorkPosition{Term: c.Term, Revision: c.Revision}
		}
	}
	return v1alpha1.WorkPosition{}
}
