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
)

// says waits until an object's Assignment has a condition, and an Event tells the same.
func (b *bench) says(k Key, kind, reason, text string) {
	b.t.Helper()
	b.states(k, kind, reason, text)
	if reason != v1alpha1.ReasonAsExpected {
		b.tells(k.Namespace, k.Kind, k.Name, reason, text)
	}
}

// states waits until an object's Assignment has a condition.
func (b *bench) states(k Key, kind, reason, text string) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("%s of %s to say %s %q", kind, k, reason, text), func(ctx context.Context) error {
		a := &v1alpha1.Assignment{}
		if err := b.client.Get(ctx, k.assignment(), a); err != nil {
			return err
		}
		c := meta.FindStatusCondition(a.Status.Conditions, kind)
		if c == nil || c.Reason != reason || !strings.Contains(c.Message, text) {
			return fmt.Errorf("%w: %+v", errNotYet, c)
		}
		return nil
	})
}

// The API server refuses rules whose path leads to what rules may not change.
func TestFixedPaths(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ns := b.namespace("fixed")
	for path, refused := range map[string]bool{
		"metadata.ownerReferences": true, "metadata.finalizers[0]": true, "metadata.name": true, "kind": true, "apiVersion": true,
		"metadata.labelsx": true, "metadata.labels.a": false, `metadata.annotations["a"]`: false, "kinds": false, "spec.kind": false,
	} {
		err := b.client.Create(t.Context(), &v1alpha1.Customization{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "c-"},
			Spec:       v1alpha1.CustomizationSpec{Rules: []v1alpha1.Rule{{Path: path, CEL: `""`}}},
		})
		if (err != nil) != refused || refused && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.rules[0].path: Forbidden")) {
			t.Errorf("path %s: got %v, want a refusal of the field: %t", path, err, refused)
		}
	}
}

// A namespace has a budget of Customizations: the youngest is over it, until another goes.
func TestBudgetOfCustomizations(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ns := b.namespace("budget")
	var last *v1alpha1.Customization
	for i := range 33 {
		last = &v1alpha1.Customization{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("c%02d", i)},
			Spec:       v1alpha1.CustomizationSpec{Rules: []v1alpha1.Rule{{Path: "spec.x", CEL: "1"}}},
		}
		b.create(last)
	}
	conditions := func() []metav1.Condition { return last.Status.Conditions }
	b.isValid(last, conditions, metav1.ConditionFalse, v1alpha1.ReasonInvalidRule, "namespace "+ns+" must have at most 32 Customizations")
	if err := b.client.Delete(t.Context(), &v1alpha1.Customization{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c07"}}); err != nil {
		t.Fatal(err)
	}
	b.isValid(last, conditions, metav1.ConditionTrue, "Valid", "")
}

// tells waits for an Event.
func (b *bench) tells(namespace, kind, name, reason, text string) {
	b.t.Helper()
	b.eventually("an Event "+reason, func(ctx context.Context) error {
		var events corev1.EventList
		if err := b.client.List(ctx, &events, client.InNamespace(namespace)); err != nil {
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

// isValid waits until a policy says whether it can be used, and why not.
func (b *bench) isValid(o client.Object, conditions func() []metav1.Condition, status metav1.ConditionStatus, reason, text string) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("%T %s to say %s %q", o, o.GetName(), reason, text), func(ctx context.Context) error {
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		c := meta.FindStatusCondition(conditions(), v1alpha1.ConditionValid)
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, text) {
			return fmt.Errorf("%w: %+v", errNotYet, c)
		}
		return nil
	})
}

// A Customization says itself what is wrong with it, in a condition and an Event with the
// rule and its path, and what it matches stays as it was until it is mended.
func TestBadRules(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("rules")
	b.cluster("rules-east", v1alpha1.ClusterSpec{})
	b.create(deployment(ns, "web", "rules-east", 2))
	key, good := deploymentKey(ns, "web"), map[string]int32{"rules-east": 2}
	b.runs(key, good)
	cases := map[string]struct {
		reason string
		rule   v1alpha1.Rule
		text   string
		late   bool // found out when it is carried out
	}{
		"syntax":  {"It does not compile.", v1alpha1.Rule{Path: "spec.x", CEL: "1 +"}, `spec.rules[0] (path "spec.x"): cel: ERROR`, false},
		"both":    {"Which one?", v1alpha1.Rule{Path: "spec.x", CEL: "1", Value: &apiextensionsv1.JSON{Raw: []byte("1")}}, `spec.rules[0] (path "spec.x"): op "set": give either cel or value`, false},
		"neither": {"What?", v1alpha1.Rule{Path: "spec.x"}, `spec.rules[0] (path "spec.x"): op "set": give either cel or value`, false},
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
			b.create(c)
			conditions := func() []metav1.Condition { return c.Status.Conditions }
			if tc.late {
				b.isValid(c, conditions, metav1.ConditionTrue, "Valid", "")
			} else {
				b.isValid(c, conditions, metav1.ConditionFalse, v1alpha1.ReasonInvalidRule, tc.text)
				b.tells(ns, "Customization", name, v1alpha1.ReasonInvalidRule, tc.text)
			}
			b.says(key, v1alpha1.ConditionRendered, v1alpha1.ReasonInvalidRule, "Deployment rules/web: Customization rules/"+name+": spec.rules[0]")
			b.says(key, v1alpha1.ConditionRendered, v1alpha1.ReasonInvalidRule, tc.text)
			b.runs(key, good)
			if err := b.client.Delete(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			b.says(key, v1alpha1.ConditionRendered, v1alpha1.ReasonAsExpected, "")
		})
	}
}

// Each mistake is said by condition and Event, with object and field, and leaves what
// was good.
func TestMistakesLeaveTheLastGoodState(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("wrong")
	b.cluster("wrong-east", v1alpha1.ClusterSpec{})
	b.cluster("wrong-west", v1alpha1.ClusterSpec{})
	d := deployment(ns, "web", "wrong-east", 2)
	b.create(d)
	key := deploymentKey(ns, "web")
	good := map[string]int32{"wrong-east": 2}
	b.runs(key, good)

	b.annotate(d, "nope")
	b.says(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonUnknownCluster, `annotations[placement.patchbay.io/clusters]: there is no Cluster "nope"`)
	b.runs(key, good)
	b.annotate(d, "wrong-east=1,wrong-west")
	b.says(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonInvalidAnnotation, "annotations[placement.patchbay.io/clusters]")
	b.runs(key, good)
	b.annotate(d, "wrong-east")
	b.says(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonAsExpected, "by annotation")

	rule := &v1alpha1.Customization{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "broken"},
		Spec: v1alpha1.CustomizationSpec{
			Match: v1alpha1.CustomizationMatch{Kinds: []v1alpha1.KindName{"Deployment.apps"}},
			Rules: []v1alpha1.Rule{{Path: "spec.template.spec.priorityClassName", CEL: "cluster.properties.nope"}},
		},
	}
	b.create(rule)
	b.says(key, v1alpha1.ConditionRendered, v1alpha1.ReasonInvalidRule, "Customization wrong/broken: spec.rules[0]")
	b.runs(key, good)
	b.annotate(d, "wrong-east=1") // moves go on, with the last good manifest
	if err := b.client.Delete(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	b.says(key, v1alpha1.ConditionRendered, v1alpha1.ReasonAsExpected, "")

	for _, name := range []string{"a", "b"} {
		b.create(&v1alpha1.Placement{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: v1alpha1.PlacementSpec{Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"wrong-west"}},
				Objects: []v1alpha1.ObjectSelector{{Kind: "ConfigMap"}, {Group: "rbac.authorization.k8s.io", Kind: "Role"}}},
		})
	}
	for _, name := range []string{"a", "b"} { // the hub knows both before there is an object
		p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		b.isValid(p, func() []metav1.Condition { return p.Status.Conditions }, metav1.ConditionFalse, v1alpha1.ReasonNotPlaceable, "spec.objects[1].kind")
	}
	b.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tied"}})
	config := Key{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Namespace: ns, Name: "tied"}
	b.says(config, v1alpha1.ConditionPlaced, v1alpha1.ReasonPolicyTie, "Placement wrong/a: spec.objects: Placement wrong/b")
	b.runs(config, map[string]int32{})
	b.tells(ns, "Placement", "a", v1alpha1.ReasonNotPlaceable, "spec.objects[1].kind: objects of the kind Role.rbac.authorization.k8s.io stay")

	large := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "large", Annotations: map[string]string{v1alpha1.ClustersAnnotation: "wrong-east"}},
		Data:       map[string]string{"all": strings.Repeat("x", v1alpha1.MaxManifestBytes)},
	}
	b.create(large)
	b.says(Key{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Namespace: ns, Name: "large"},
		v1alpha1.ConditionRendered, v1alpha1.ReasonTooLarge, "wrong/large")
}

// (kcp 7) The limit refuses; growth spills over with no replica moved; what fits nowhere
// says so.
func TestLimits(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("limits")
	b.cluster("limits-east", v1alpha1.ClusterSpec{Limits: &v1alpha1.Limits{Pods: new(int32(4))}})
	b.cluster("limits-west", v1alpha1.ClusterSpec{Limits: &v1alpha1.Limits{Pods: new(int32(6))}})
	first := deployment(ns, "first", "limits-east", 3)
	b.create(first)
	b.runs(deploymentKey(ns, "first"), map[string]int32{"limits-east": 3})
	second := deployment(ns, "second", "limits-east,limits-west", 2)
	b.create(second)
	key := deploymentKey(ns, "second")
	b.runs(key, map[string]int32{"limits-east": 1, "limits-west": 1})
	scale := func(n int32) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
		if err := b.client.Patch(t.Context(), second, patch); err != nil {
			t.Fatal(err)
		}
	}
	scale(6)
	b.runs(key, map[string]int32{"limits-east": 1, "limits-west": 5})
	scale(9)
	b.runs(key, map[string]int32{"limits-east": 1, "limits-west": 6})
	b.says(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonUnschedulable, "2 of 9 replicas have no room: limits-east has room for 1")
}
