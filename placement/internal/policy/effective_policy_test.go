// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func TestParseClusters(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		names   []string
		weights map[string]int64
		wrong   string
	}{
		"":               {},
		" ":              {},
		"east":           {names: []string{"east"}},
		"east, west":     {names: []string{"east", "west"}},
		"west,east":      {names: []string{"west", "east"}},
		"east=3,west=1":  {names: []string{"east", "west"}, weights: map[string]int64{"east": 3, "west": 1}},
		"east=3,west":    {wrong: "all clusters must have a number, or none"},
		"east,east":      {wrong: "east must be named once only"},
		"East":           {wrong: `"East" must be the name of a cluster`},
		"east,":          {wrong: `"" must be the name of a cluster`},
		"east=x":         {wrong: "must have a number from 0 to 1000000"},
		"east=-1":        {wrong: "must have a number from 0 to 1000000"},
		"east=1000001":   {wrong: "must have a number from 0 to 1000000"},
		"east=1=2":       {wrong: "must have a number from 0 to 1000000"},
		"east;west":      {wrong: "must be the name of a cluster"},
		"../kube-system": {wrong: "must be the name of a cluster"},
	} {
		names, weights, err := ParseClustersAnnotation(text)
		if want.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), want.wrong) || !strings.Contains(err.Error(), v1alpha1.ClustersAnnotation) {
				t.Errorf("%q: got %v, want an error with %q that names the annotation", text, err, want.wrong)
			}
			continue
		}
		if diff := cmp.Diff([]any{want.names, want.weights}, []any{names, weights}); err != nil || diff != "" {
			t.Errorf("%q: %v, -want +got\n%s", text, err, diff)
		}
	}
}

func FuzzParseClusters(f *testing.F) {
	f.Add("east=3,west=1")
	f.Fuzz(func(t *testing.T, text string) {
		names, weights, err := ParseClustersAnnotation(text)
		if err == nil && len(weights) != 0 && len(weights) != len(names) {
			t.Errorf("%q: %v, %v", text, names, weights)
		}
	})
}

var deployments = schema.GroupKind{Group: "apps", Kind: "Deployment"}

func object(change func(*Object)) Object {
	o := Object{
		Kind: deployments, Namespace: "shop", Name: "web", Namespaced: true,
		Labels: map[string]string{"app": "web"}, NamespaceLabels: map[string]string{"team": "shop"},
	}
	if change != nil {
		change(&o)
	}
	return o
}

func local(name string, spec v1alpha1.PlacementSpec) v1alpha1.Placement {
	return v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: spec}
}

func global(spec v1alpha1.ClusterPlacementSpec) v1alpha1.ClusterPlacement {
	return v1alpha1.ClusterPlacement{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: spec}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	all := v1alpha1.PlacementSpec{}
	team := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
	for name, tc := range map[string]struct {
		object Object
		local  []v1alpha1.Placement
		global []v1alpha1.ClusterPlacement
		source string
		wrong  string // prefix of the error
		// wrongReason is that of the error.
		wrongReason string
		reason      string
	}{
		"no policy":  {object: object(nil), reason: "an object without a policy stays at the hub"},
		"annotation": {object: object(func(o *Object) { o.Annotations = map[string]string{v1alpha1.ClustersAnnotation: "east"} }), source: "annotation"},
		"annotation before namespace": {
			object: object(func(o *Object) { o.Annotations = map[string]string{v1alpha1.ClustersAnnotation: ""} }),
			local:  []v1alpha1.Placement{local("all", all)}, source: "annotation", reason: "an empty annotation selects no cluster, whatever the policy selects",
		},
		"namespace before global": {
			object: object(nil), local: []v1alpha1.Placement{local("all", all)},
			global: []v1alpha1.ClusterPlacement{global(v1alpha1.ClusterPlacementSpec{})}, source: "Placement shop/all",
		},
		"global": {
			object: object(nil), global: []v1alpha1.ClusterPlacement{global(v1alpha1.ClusterPlacementSpec{NamespaceSelector: team})},
			source: "ClusterPlacement all",
		},
		"global of other namespaces": {
			object: object(func(o *Object) { o.NamespaceLabels = nil }),
			global: []v1alpha1.ClusterPlacement{global(v1alpha1.ClusterPlacementSpec{NamespaceSelector: team})},
		},
		"tie": {
			object: object(nil), local: []v1alpha1.Placement{local("a", all), local("b", all)},
			wrong: "Placement shop/a: spec.objects: Placement shop/b selects this object too", wrongReason: v1alpha1.ReasonPolicyTie,
		},
		"tie in another order": {
			object: object(nil), local: []v1alpha1.Placement{local("b", all), local("a", all)},
			wrong: "Placement shop/a: spec.objects: Placement shop/b selects this object too", wrongReason: v1alpha1.ReasonPolicyTie,
			reason: "a cache lists in any order, and the condition must not change with it",
		},
		"annotation breaks a tie": {
			object: object(func(o *Object) { o.Annotations = map[string]string{v1alpha1.ClustersAnnotation: "east"} }),
			local:  []v1alpha1.Placement{local("a", all), local("b", all)}, source: "annotation",
		},
		"selected by kind": {
			object: object(nil), source: "Placement shop/a", local: []v1alpha1.Placement{
				local("a", v1alpha1.PlacementSpec{Objects: []v1alpha1.ObjectSelector{{Group: "apps", Kind: "Deployment", Names: []v1alpha1.ObjectName{"web"}}}}),
				local("b", v1alpha1.PlacementSpec{Objects: []v1alpha1.ObjectSelector{{Kind: "ConfigMap"}}}),
			},
		},
		"cluster-scoped only when named": {
			object: object(func(o *Object) { o.Namespace, o.Namespaced = "", false }),
			global: []v1alpha1.ClusterPlacement{global(v1alpha1.ClusterPlacementSpec{})},
		},
		"bad selector": {
			object: object(nil), wrong: "Placement shop/a: spec.objects[0].selector", wrongReason: v1alpha1.ReasonInvalidSelector,
			local: []v1alpha1.Placement{local("a", v1alpha1.PlacementSpec{Objects: []v1alpha1.ObjectSelector{{Selector: bad}}})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy, err := Resolve(tc.object, tc.local, tc.global)
			if tc.wrong != "" {
				if e, ok := errors.AsType[*Error](err); !ok || e.Reason != tc.wrongReason || !strings.HasPrefix(err.Error(), tc.wrong) {
					t.Errorf("%s: got %v, want an Error with the reason %s that begins with %q", tc.reason, err, tc.wrongReason, tc.wrong)
				}
				return
			}
			got := ""
			if policy != nil {
				got = policy.Source
			}
			if err != nil || got != tc.source {
				t.Errorf("%s: got %q, %v, want %q", tc.reason, got, err, tc.source)
			}
		})
	}
}

func TestPlaceable(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kind       schema.GroupKind
		namespaced bool
		want       bool
	}{
		"Deployments":            {deployments, true, true},
		"custom kinds":           {schema.GroupKind{Group: "example.com", Kind: "Database"}, true, true},
		"custom, cluster-scoped": {schema.GroupKind{Group: "danm.io", Kind: "ClusterNetwork"}, false, true},
		"tenants' networks":      {schema.GroupKind{Group: "danm.io", Kind: "TenantNetwork"}, true, true},
		"TenantConfigs":          {schema.GroupKind{Group: "danm.io", Kind: "TenantConfig"}, false, false},
		"Roles":                  {schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "Role"}, true, false},
		"ClusterRoles":           {schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}, false, false},
		"Events":                 {schema.GroupKind{Kind: "Event"}, true, false},
		"Leases":                 {schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}, true, false},
		"Nodes":                  {schema.GroupKind{Kind: "Node"}, false, false},
		"definitions":            {schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}, false, false},
		"Works":                  {schema.GroupKind{Group: v1alpha1.GroupName, Kind: "Work"}, true, false},
	} {
		if got := Placeable(tc.kind, tc.namespaced); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
	for object, want := range map[string]bool{
		"ConfigMap shop/kube-root-ca.crt": false, "ConfigMap kube-system/a": false, "ConfigMap cluster-east/a": false, "ConfigMap shop/a": true,
		"ConfigMap shop/sh.helm.release.v1.web.v3": false, "Secret shop/sh.helm.release.v1.web.v3": false, "Secret shop/a": true,
	} {
		kind, at, _ := strings.Cut(object, " ")
		ns, name, _ := strings.Cut(at, "/")
		if got := PlaceableObject(schema.GroupKind{Kind: kind}, ns, name); got != want {
			t.Errorf("%s: got %t, want %t", object, got, want)
		}
	}
}

// Annotations of an object stand for two fields of its policy, and take precedence over them.
func TestObjectAnnotations(t *testing.T) {
	t.Parallel()
	all := v1alpha1.PlacementSpec{Apply: v1alpha1.ApplyPolicy{Conflict: v1alpha1.ConflictRefuse, Yield: []v1alpha1.FieldPath{"spec.replicas"}}}
	for name, tc := range map[string]struct {
		reason, annotation, value string
		local                     []v1alpha1.Placement
		conflict                  v1alpha1.ConflictMode
		wrong                     string
	}{
		"none":          {reason: "The agent adopts nothing by default.", local: []v1alpha1.Placement{local("all", all)}, conflict: v1alpha1.ConflictRefuse},
		"adopt":         {reason: "The object has precedence over the policy.", annotation: v1alpha1.ConflictAnnotation, value: "Adopt", local: []v1alpha1.Placement{local("all", all)}, conflict: v1alpha1.ConflictAdopt},
		"force":         {reason: "One object must not take fields of others by force.", annotation: v1alpha1.ConflictAnnotation, value: "Force", wrong: "metadata.annotations[placement.patchbay.io/conflict]: must be Adopt"},
		"empty":         {reason: "An empty value is a mistake, too.", annotation: v1alpha1.ConflictAnnotation, wrong: "metadata.annotations[placement.patchbay.io/conflict]: must be Adopt"},
		"orphan":        {reason: "The hub reads onDelete from the object.", annotation: v1alpha1.OnDeleteAnnotation, value: "Orphan", local: []v1alpha1.Placement{local("all", all)}, conflict: v1alpha1.ConflictRefuse},
		"wrong orphan":  {reason: "A typing error must not delete the object in its clusters.", annotation: v1alpha1.OnDeleteAnnotation, value: "orphan", wrong: "metadata.annotations[placement.patchbay.io/on-delete]: must be Orphan or Delete"},
		"adopt no plan": {reason: "The annotation alone places nothing.", annotation: v1alpha1.ConflictAnnotation, value: "Adopt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := object(func(o *Object) {
				if tc.annotation != "" {
					o.Annotations = map[string]string{tc.annotation: tc.value}
				}
			})
			p, err := Resolve(o, tc.local, nil)
			if tc.wrong != "" {
				e, ok := errors.AsType[*Error](err)
				if !ok || e.Reason != v1alpha1.ReasonInvalidAnnotation || !strings.HasPrefix(e.Error(), tc.wrong) {
					t.Errorf("%s: got %v, want %q", tc.reason, err, tc.wrong)
				}
				return
			}
			if err != nil || (p == nil) != (tc.conflict == "") {
				t.Fatalf("%s: got %+v, %v", tc.reason, p, err)
			}
			if p != nil && (p.Spec.Apply.Conflict != tc.conflict || len(p.Spec.Apply.Yield) != 1) {
				t.Errorf("%s: got %+v, want %s and the rest of the policy", tc.reason, p.Spec.Apply, tc.conflict)
			}
		})
	}
}
