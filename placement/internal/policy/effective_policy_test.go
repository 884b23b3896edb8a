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
	for name, want := range map[string]bool{"shop/kube-root-ca.crt": false, "kube-system/a": false, "cluster-east/a": false, "shop/a": true} {
		ns, object, _ := strings.Cut(name, "/")
		if got := PlaceableObject(schema.GroupKind{Kind: "ConfigMap"}, ns, object); got != want {
			t.Errorf("ConfigMap %s: got %t, want %t", name, got, want)
		}
	}
}
