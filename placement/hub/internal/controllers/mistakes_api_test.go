// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// expectReported waits until an object's Assignment has a condition, and the object the same Event.
func (h *testHub) expectReported(k kinds.Key, kind, reason, text string) {
	h.t.Helper()
	h.expectCondition(k, kind, reason, text)
	if reason != v1alpha1.ReasonAsExpected {
		h.expectEvent(k.Namespace, k.Kind, k.Name, reason, text)
	}
}

// expectCondition waits until an object's Assignment has a condition.
func (h *testHub) expectCondition(k kinds.Key, kind, reason, text string) {
	h.t.Helper()
	h.eventually(fmt.Sprintf("%s of %s to have the reason %s and the message %q", kind, k, reason, text), func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := h.client.Get(ctx, k.Assignment(), a); err != nil {
			return err
		}
		c := meta.FindStatusCondition(a.Status.Conditions, kind)
		if c == nil || c.Reason != reason || !strings.Contains(c.Message, text) {
			return fmt.Errorf("%w: %+v", errNotYet, c)
		}
		return nil
	})
}

// The API server rejects rules for fields that rules must not change.
func TestForbiddenPaths(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	ns := h.namespace("fixed")
	for path, rejected := range map[string]bool{
		"metadata.ownerReferences": true, "metadata.finalizers[0]": true, "metadata.name": true, "kind": true, "apiVersion": true,
		"metadata.labelsx": true, "metadata.labels.a": false, `metadata.annotations["a"]`: false, "kinds": false, "spec.kind": false,
	} {
		err := h.client.Create(t.Context(), &v1alpha1.Customization{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "c-"},
			Spec:       v1alpha1.CustomizationSpec{Rules: []v1alpha1.Rule{{Path: path, CEL: `""`}}},
		})
		if (err != nil) != rejected || rejected && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.rules[0].path: Forbidden")) {
			t.Errorf("path %s: got %v, want the field forbidden: %t", path, err, rejected)
		}
	}
}

// A namespace has a budget of Customizations. The youngest is invalid beyond it, until another one is
// deleted.
func TestBudgetOfCustomizations(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	ns := h.namespace("budget")
	var last *v1alpha1.Customization
	for i := range 33 {
		last = &v1alpha1.Customization{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("c%02d", i)},
			Spec:       v1alpha1.CustomizationSpec{Rules: []v1alpha1.Rule{{Path: "spec.x", CEL: "1"}}},
		}
		h.create(last)
	}
	conditions := func() []metav1.Condition { return last.Status.Conditions }
	h.expectValid(last, conditions, metav1.ConditionFalse, v1alpha1.ReasonInvalidRule, "namespace "+ns+" must have at most 32 Customizations")
	if err := h.client.Delete(t.Context(), &v1alpha1.Customization{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c07"}}); err != nil {
		t.Fatal(err)
	}
	h.expectValid(last, conditions, metav1.ConditionTrue, "Valid", "")
}

// expectEvent waits for an Event.
func (h *testHub) expectEvent(namespace, kind, name, reason, text string) {
	h.t.Helper()
	h.eventually("an Event "+reason, func(ctx context.Context) error {
		var events corev1.EventList
		if err := h.client.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == reason && e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && strings.Contains(e.Message, text) {
				return nil
			}
		}
		return errNotYet
	})
}

// expectValid waits until a policy has the condition Valid with this status.
func (h *testHub) expectValid(o client.Object, conditions func() []metav1.Condition, status metav1.ConditionStatus, reason, text string) {
	h.t.Helper()
	h.eventually(fmt.Sprintf("%T %s to have the reason %s and the message %q", o, o.GetName(), reason, text), func(ctx context.Context) error {
		if err := h.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		c := meta.FindStatusCondition(conditions(), v1alpha1.ConditionValid)
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, text) {
			return fmt.Errorf("%w: %+v", errNotYet, c)
		}
		return nil
	})
}

// A Customization reports its mistake in a condition and an Event, with the rule and its path. The objects
// that it matches stay as they were until the mistake is corrected.
func TestBadRules(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("rules")
	h.cluster("rules-east", v1alpha1.ClusterSpec{})
	h.create(deployment(ns, "web", "rules-east", 2))
	key, good := deploymentKey(ns, "web"), map[string]int32{"rules-east": 2}
	h.expectWorks(key, good)
	cases := map[string]struct {
		reason string
		rule   v1alpha1.Rule
		text   string
		late   bool // found when the rule is applied
	}{
		"syntax":  {"The expression does not compile.", v1alpha1.Rule{Path: "spec.x", CEL: "1 +"}, `spec.rules[0] (path "spec.x"): cel: ERROR`, false},
		"both":    {"A rule with two values is ambiguous.", v1alpha1.Rule{Path: "spec.x", CEL: "1", Value: &apiextensionsv1.JSON{Raw: []byte("1")}}, `spec.rules[0] (path "spec.x"): op "set": give either cel or value`, false},
		"neither": {"A rule without a value does nothing.", v1alpha1.Rule{Path: "spec.x"}, `spec.rules[0] (path "spec.x"): op "set": give either cel or value`, false},
		"costly": {
			"It would take too long.",
			v1alpha1.Rule{Path: "spec.x", CEL: "[1,1,1,1,1,1,1,1,1,1].map(a, [1,1,1,1,1,1,1,1,1,1].map(b, true" +
				strings.Repeat(" && object == object", 90) + "))"}, "cost limit exceeded", true,
		},
		"owner": {
			"The cluster's garbage collector would delete the object.",
			v1alpha1.Rule{Path: "metadata", Op: v1alpha1.RuleMerge, CEL: `{"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1"}]}`},
			"metadata.ownerReferences must stay as it is", true,
		},
		"finalizer": {
			"It would keep the object and its namespace for ever.",
			v1alpha1.Rule{Path: `["metadata"].finalizers`, CEL: `["example.com/never"]`}, "metadata.finalizers must stay as it is", false,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Customization{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
				Spec:       v1alpha1.CustomizationSpec{Match: v1alpha1.CustomizationMatch{Kinds: []v1alpha1.KindName{"Deployment.apps"}}, Rules: []v1alpha1.Rule{tc.rule}},
			}
			h.create(c)
			conditions := func() []metav1.Condition { return c.Status.Conditions }
			if tc.late {
				h.expectValid(c, conditions, metav1.ConditionTrue, "Valid", "")
			} else {
				h.expectValid(c, conditions, metav1.ConditionFalse, v1alpha1.ReasonInvalidRule, tc.text)
				h.expectEvent(ns, "Customization", name, v1alpha1.ReasonInvalidRule, tc.text)
			}
			h.expectReported(key, v1alpha1.ConditionRendered, v1alpha1.ReasonInvalidRule, "Deployment rules/web: Customization rules/"+name+": spec.rules[0]")
			h.expectReported(key, v1alpha1.ConditionRendered, v1alpha1.ReasonInvalidRule, tc.text)
			h.expectWorks(key, good)
			if err := h.client.Delete(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			h.expectReported(key, v1alpha1.ConditionRendered, v1alpha1.ReasonAsExpected, "")
		})
	}
}

// Each mistake is reported by a condition and an Event, with object and field, and leaves the last good
// state.
func TestMistakesLeaveTheLastGoodState(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("wrong")
	h.cluster("wrong-east", v1alpha1.ClusterSpec{})
	h.cluster("wrong-west", v1alpha1.ClusterSpec{})
	d := deployment(ns, "web", "wrong-east", 2)
	h.create(d)
	key := deploymentKey(ns, "web")
	good := map[string]int32{"wrong-east": 2}
	h.expectWorks(key, good)

	h.annotate(d, "nope")
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonUnknownCluster, `annotations[placement.patchbay.io/clusters]: must be a Cluster of this hub: there is no Cluster "nope"`)
	h.expectWorks(key, good)
	h.annotate(d, "wrong-east=1,wrong-west")
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonInvalidAnnotation, "annotations[placement.patchbay.io/clusters]")
	h.expectWorks(key, good)
	h.annotate(d, "wrong-east")
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonAsExpected, "by annotation")

	rule := &v1alpha1.Customization{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "broken"},
		Spec: v1alpha1.CustomizationSpec{
			Match: v1alpha1.CustomizationMatch{Kinds: []v1alpha1.KindName{"Deployment.apps"}},
			Rules: []v1alpha1.Rule{{Path: "spec.template.spec.priorityClassName", CEL: "cluster.properties.nope"}},
		},
	}
	h.create(rule)
	h.expectReported(key, v1alpha1.ConditionRendered, v1alpha1.ReasonInvalidRule, "Customization wrong/broken: spec.rules[0]")
	h.expectWorks(key, good)
	h.annotate(d, "wrong-east=1") // the object still moves, with the last good manifest
	if err := h.client.Delete(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	h.expectReported(key, v1alpha1.ConditionRendered, v1alpha1.ReasonAsExpected, "")

	for _, name := range []string{"a", "b"} {
		h.create(&v1alpha1.Placement{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: v1alpha1.PlacementSpec{Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"wrong-west"}},
				Objects: []v1alpha1.ObjectSelector{{Kind: "ConfigMap"}, {Group: "rbac.authorization.k8s.io", Kind: "Role"}}},
		})
	}
	for _, name := range []string{"a", "b"} { // the hub has both before the object exists
		p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		h.expectValid(p, func() []metav1.Condition { return p.Status.Conditions }, metav1.ConditionFalse, v1alpha1.ReasonNotPlaceable, "spec.objects[1].kind")
	}
	h.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tied"}})
	config := kinds.Key{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Namespace: ns, Name: "tied"}
	h.expectReported(config, v1alpha1.ConditionPlaced, v1alpha1.ReasonPolicyTie, "Placement wrong/a: spec.objects: Placement wrong/b")
	h.expectWorks(config, map[string]int32{})
	h.expectEvent(ns, "Placement", "a", v1alpha1.ReasonNotPlaceable, "spec.objects[1].kind: must be a kind that can be placed: objects of kind Role.rbac.authorization.k8s.io stay")

	large := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "large", Annotations: map[string]string{v1alpha1.ClustersAnnotation: "wrong-east"}},
		Data:       map[string]string{"all": strings.Repeat("x", v1alpha1.MaxManifestBytes)},
	}
	h.create(large)
	h.expectReported(kinds.Key{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Namespace: ns, Name: "large"},
		v1alpha1.ConditionRendered, v1alpha1.ReasonTooLarge, "wrong/large")
}

// (kcp 7) A limit rejects replicas. Growth goes to other clusters, and no replica moves. Replicas that
// fit in no cluster are reported.
func TestLimits(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("limits")
	h.cluster("limits-east", v1alpha1.ClusterSpec{Limits: &v1alpha1.Limits{Pods: new(int32(4))}})
	h.cluster("limits-west", v1alpha1.ClusterSpec{Limits: &v1alpha1.Limits{Pods: new(int32(6))}})
	first := deployment(ns, "first", "limits-east", 3)
	h.create(first)
	h.expectWorks(deploymentKey(ns, "first"), map[string]int32{"limits-east": 3})
	second := deployment(ns, "second", "limits-east,limits-west", 2)
	h.create(second)
	key := deploymentKey(ns, "second")
	h.expectWorks(key, map[string]int32{"limits-east": 1, "limits-west": 1})
	scale := func(n int32) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
		if err := h.client.Patch(t.Context(), second, patch); err != nil {
			t.Fatal(err)
		}
	}
	scale(6)
	h.expectWorks(key, map[string]int32{"limits-east": 1, "limits-west": 5})
	scale(9)
	h.expectWorks(key, map[string]int32{"limits-east": 1, "limits-west": 6})
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonUnschedulable, "2 of 9 replicas have no room: limits-east has room for 1")
}
