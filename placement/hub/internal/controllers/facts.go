// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/aggregate"
)

// facts are what a Work reports of its object.
type facts struct {
	applied bool // the cluster has the present Work
	current bool // and its controllers have seen it
	ready   bool
	gone    bool // it ran once, and somebody else deleted it
	message string
	refused string // the reason, when trying again does not help

	uids       []types.UID // of the objects there, one for each manifest
	replicas   *int32      // spec.replicas there
	counts     v1alpha1.ReplicaCounts
	observed   int64
	generation int64
	status     map[string]any
	associated *v1alpha1.Associated
	claims     []string // of volumes that its Pods use, as namespace/name
}

// factsOf reads a Work's report.
func factsOf(gk schema.GroupKind, w *v1alpha1.Work) facts {
	var f facts
	applied := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionApplied)
	f.applied = w.Status.Revision >= w.Spec.Revision && applied != nil && applied.Status == metav1.ConditionTrue
	if applied != nil && applied.Status != metav1.ConditionTrue {
		f.message, f.refused = applied.Message, refusal(applied.Reason)
	}
	if len(w.Status.Manifests) == 0 {
		return f
	}
	for i := range w.Status.Manifests {
		f.uids = append(f.uids, w.Status.Manifests[i].UID)
	}
	m := &w.Status.Manifests[0]
	f.replicas = m.Replicas
	// An order to remove is answered for the Work; the manifest keeps what was said of it before.
	if c := meta.FindStatusCondition(m.Conditions, v1alpha1.ConditionApplied); w.Spec.Removal == nil && c != nil && c.Status != metav1.ConditionTrue {
		f.message, f.refused, f.gone = c.Message, refusal(c.Reason), c.Reason == v1alpha1.ReasonDeletedInCluster
	}
	f.associated, f.generation, f.claims = m.Associated, m.Generation, m.VolumeClaims
	f.observed = m.SourceGeneration
	f.current = f.applied
	if m.Status != nil {
		if utiljson.Unmarshal(m.Status.Raw, &f.status) != nil {
			f.status = nil
		}
	}
	if seen, ok := f.status["observedGeneration"].(int64); ok && seen < m.AppliedGeneration {
		f.current, f.observed = false, max(0, m.SourceGeneration-1)
	}
	f.ready = f.current && m.Ready
	f.counts = aggregate.ReplicaCounts(gk, f.status)
	return f
}

// refusal is a reason that a cluster has not the present Work, if somebody has to do
// something about it.
func refusal(reason string) string {
	switch reason {
	case v1alpha1.ReasonProgressing, v1alpha1.ReasonRemoved, v1alpha1.ReasonDeletedInCluster:
		return ""
	}
	return reason
}

// same compares two values as they are stored.
func same(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
