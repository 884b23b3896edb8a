// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// customize returns a Customization with a spec in YAML.
func customize(t *testing.T, namespace, name, spec string) v1alpha1.Customization {
	t.Helper()
	c := v1alpha1.Customization{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &c.Spec); err != nil {
		t.Fatal(err)
	}
	return c
}

// east returns a cluster with properties.
func east() *v1alpha1.Cluster {
	return &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "east", Labels: map[string]string{"region": "eu"}, Annotations: map[string]string{"example.com/owner": "ops"}},
		Spec:       v1alpha1.ClusterSpec{Properties: map[string]v1alpha1.PropertyValue{"nic": "ens4", "vlan": "210", "registry": "east.example.com"}},
	}
}

const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - {name: web, image: hub.example.com/web:1, args: [a, b]}
`

func TestRules(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, object, rules string
		path                  string // of the compared field
		want                  any
	}{
		"Value":     {reason: "the field gets the value", rules: "[{path: spec.minReadySeconds, value: 5}]", path: "spec.minReadySeconds", want: int64(5)},
		"Deep":      {reason: "parents of the field are created", rules: "[{path: 'metadata.annotations[\"example.com/a.b\"]', value: x}]", path: "metadata.annotations", want: map[string]any{"example.com/a.b": "x"}},
		"Index":     {reason: "a path may have an index", rules: "[{path: 'spec.template.spec.containers[0].image', value: x}]", path: "spec.template.spec.containers[0].image", want: "x"},
		"Append":    {reason: "the index after the last appends", rules: "[{path: 'spec.template.spec.containers[0].args[2]', value: c}]", path: "spec.template.spec.containers[0].args", want: []any{"a", "b", "c"}},
		"NewList":   {reason: "a list may be new", rules: "[{path: 'spec.x[0].y', value: c}]", path: "spec.x", want: []any{map[string]any{"y": "c"}}},
		"Remove":    {reason: "the field is removed", rules: "[{path: metadata.labels.app, op: remove}]", path: "metadata.labels", want: map[string]any{}},
		"Cut":       {reason: "the list item is removed", rules: "[{path: 'spec.template.spec.containers[0].args[0]', op: remove}]", path: "spec.template.spec.containers[0].args", want: []any{"b"}},
		"Gone":      {reason: "a missing field is ignored", rules: "[{path: 'a.b[3].c', op: remove}, {path: 'spec.template.spec.containers[7]', op: remove}, {path: 'metadata.labels.x.y', op: remove}]", path: "spec.replicas", want: int64(3)},
		"Merge":     {reason: "null removes a field, and the others stay", rules: "[{path: metadata.labels, op: merge, value: {app: null, tier: front, deep: {a: b, c: null}}}]", path: "metadata.labels", want: map[string]any{"tier": "front", "deep": map[string]any{"a": "b"}}},
		"MergeAll":  {reason: "the empty path is the whole object", rules: "[{path: '', op: merge, value: {spec: {paused: true}}}]", path: "spec.paused", want: true},
		"Cluster":   {reason: "cluster has name, labels, annotations and properties", rules: `[{path: spec.x, cel: 'cluster.name + cluster.labels.region + cluster.annotations["example.com/owner"] + cluster.properties.nic'}]`, path: "spec.x", want: "easteuopsens4"},
		"Replace":   {reason: "images may come from a registry of the cluster", rules: `[{path: 'spec.template.spec.containers[0].image', cel: 'object.spec.template.spec.containers[0].image.replace("hub.example.com", cluster.properties.registry)'}]`, path: "spec.template.spec.containers[0].image", want: "east.example.com/web:1"},
		"AllImages": {reason: "a list may be mapped", rules: `[{path: 'spec.template.spec.containers', cel: 'object.spec.template.spec.containers.map(c, {"name": c.name, "image": "x/" + c.image})'}]`, path: "spec.template.spec.containers", want: []any{map[string]any{"name": "web", "image": "x/hub.example.com/web:1"}}},
		"InOrder":   {reason: "each rule sees the result of the ones before", rules: "[{path: spec.x, value: 2}, {path: spec.y, cel: 'object.spec.x * 21'}]", path: "spec.y", want: int64(42)},
		"Number":    {reason: "a property may be converted to a number", rules: "[{path: spec.x, cel: 'int(cluster.properties.vlan) + 1'}]", path: "spec.x", want: int64(211)},
		"Whole":     {reason: "the API server decodes a number without a fraction as an integer", rules: "[{path: spec.x, cel: '4.0'}, {path: spec.y, value: [1.5, {z: 2.0}]}]", path: "spec", want: map[string]any{"x": int64(4), "y": []any{1.5, map[string]any{"z": int64(2)}}}, object: "apiVersion: v1\nkind: X\nspec: {}\nmetadata: {name: x, namespace: shop}"},
		"Kinds":     {reason: "a value may have any JSON type", rules: "[{path: spec.x, cel: '[null, true, 1u, 1.5, [], {\"a\": [1]}]'}]", path: "spec.x", want: []any{nil, true, int64(1), 1.5, []any{}, map[string]any{"a": []any{int64(1)}}}},
		"Optional":  {reason: "an optional without a value leaves the field unchanged", rules: "[{path: spec.replicas, cel: 'cluster.properties[?\"none\"]'}, {path: spec.x, cel: 'cluster.properties[?\"nic\"]'}]", path: "spec", want: map[string]any{"replicas": int64(3), "x": "ens4"}, object: "apiVersion: v1\nkind: X\nspec: {replicas: 3}\nmetadata: {name: x, namespace: shop}"},
		"Copy":      {reason: "a value is a copy of its source", rules: "[{path: spec.x, cel: 'object.metadata.labels'}, {path: spec.x.app, value: other}]", path: "metadata.labels", want: map[string]any{"app": "web"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules, errs := Compile([]v1alpha1.Customization{customize(t, "shop", "c", "rules: "+tc.rules)})
			if len(errs) > 0 {
				t.Fatalf("%s: %v", tc.reason, errs)
			}
			if tc.object == "" {
				tc.object = web
			}
			o := object(t, tc.object)
			if err := rules.Apply(o, east()); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, field(t, o, tc.path)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// Compile finds invalid rules and names them.
func TestRulesThatDoNotCompile(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, spec, want string
	}{
		"Syntax":    {reason: "the error has CEL's message", spec: "rules: [{path: a, value: 1}, {path: spec.x, cel: '1 +'}]", want: `Customization shop/c: spec.rules[1] (path "spec.x"): cel: ERROR`},
		"Unknown":   {reason: "the variable does not exist", spec: "rules: [{path: spec.x, cel: 'clusters.name'}]", want: "undeclared reference to 'clusters'"},
		"Nested":    {reason: "nested loops would take too long", spec: "rules: [{path: a, cel: '[1].map(a, [1].map(b, [1].map(c, [1].map(d, d))))'}]", want: "nesting"},
		"Path":      {reason: "the path has a superfluous dot", spec: "rules: [{path: a..b, value: 1}]", want: `path at "..b": must have the name of a field`},
		"Bracket":   {reason: "brackets must have an index or a key", spec: "rules: [{path: 'a[x]', value: 1}]", want: `must have an index or a key in quotes`},
		"Open":      {reason: "the key has no end", spec: `rules: [{path: 'a["x"', value: 1}]`, want: `must have a closing bracket after "x"`},
		"NoDot":     {reason: "a dot must follow a bracket", spec: `rules: [{path: 'a[0]b', value: 1}]`, want: `must continue with a dot or a bracket`},
		"Whole":     {reason: "a rule must not replace the whole object", spec: "rules: [{path: '', value: {}}]", want: "the path must not be empty with op set"},
		"Both":      {reason: "a rule must have only one value", spec: "rules: [{path: a, value: 1, cel: '1'}]", want: "give either cel or value"},
		"Neither":   {reason: "a rule must have a value", spec: "rules: [{path: a}]", want: "give either cel or value"},
		"RemoveTo":  {reason: "remove takes no value", spec: "rules: [{path: a, op: remove, value: 1}]", want: "neither of them with remove"},
		"Op":        {reason: "the operation does not exist", spec: "rules: [{path: a, op: add, value: 1}]", want: `op "add"`},
		"Selector":  {reason: "the operator of the selector does not exist", spec: "match: {selector: {matchExpressions: [{key: a, operator: Near}]}}\nrules: [{path: a, value: 1}]", want: "Customization shop/c: spec.match: selector"},
		"Clusters":  {reason: "the operator of the cluster selector does not exist", spec: "match: {clusterSelector: {matchExpressions: [{key: a, operator: Near}]}}\nrules: [{path: a, value: 1}]", want: "spec.match: clusterSelector"},
		"Kind":      {reason: "another kind would be another object", spec: "rules: [{path: kind, value: Pod}]", want: "kind must stay as it is"},
		"Owners":    {reason: "owners decide when an object is deleted", spec: "rules: [{path: 'metadata.ownerReferences[0].uid', value: x}]", want: "metadata.ownerReferences must stay as it is"},
		"Quoted":    {reason: "a quoted and escaped path names the same field", spec: `rules: [{path: '["meta\u0064ata"]["finalizers"]', cel: '["example.com/never"]'}]`, want: "metadata.finalizers must stay as it is"},
		"Patched":   {reason: "a merge must not change finalizers either", spec: "rules: [{path: '', op: merge, value: {kind: Deployment, metadata: {name: web, labels: {a: b}, finalizers: [example.com/never]}}}]", want: "value: metadata.finalizers must stay as it is"},
		"BadRegexp": {reason: "the regular expression is invalid", spec: "rules: [{path: a, cel: '\"a\".matches(\"(\")'}]", want: "invalid matches argument"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good := customize(t, v1alpha1.SystemNamespace, "good", "rules: [{path: spec.good, value: 1}]")
			rules, errs := Compile([]v1alpha1.Customization{customize(t, "shop", "c", tc.spec), good})
			var which *RuleError
			if len(errs) != 1 || !strings.Contains(errs[0].Error(), tc.want) || !errors.As(errs[0], &which) || which.Name != "c" || which.Unwrap() == nil {
				t.Fatalf("%s: got %v, want one error with %q", tc.reason, errs, tc.want)
			}
			o := object(t, web)
			if err := rules.Apply(o, east()); !errors.Is(err, errs[0]) {
				t.Errorf("%s: Apply must fail with the error of Compile: %v", tc.reason, err)
			}
			if diff := cmp.Diff(object(t, web).Object, o.Object); diff != "" {
				t.Errorf("%s: the object was changed: %s", tc.reason, diff)
			}
			o.SetNamespace("bar")
			if err := rules.Apply(o, east()); err != nil {
				t.Errorf("%s: objects of another namespace must not be affected: %v", tc.reason, err)
			}
		})
	}
}

// An error during Apply names the rule, and the object stays unchanged.
func TestRulesThatFail(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, rule, want string
	}{
		"NoField":  {reason: "the field does not exist", rule: "{path: spec.x, cel: 'object.spec.nothing'}", want: `no such key: nothing`},
		"Property": {reason: "the property does not exist", rule: "{path: spec.x, cel: 'cluster.properties.none'}", want: `no such key: none`},
		"Cost":     {reason: "an expensive expression is stopped", rule: "{path: spec.x, cel: 'object.many.map(a, object.many.map(b, a + b))'}", want: "cost limit exceeded"},
		"Size":     {reason: "the size of a long text is computed in a loop", rule: "{path: spec.x, cel: 'object.many.map(a, size(object.long))'}", want: "cost limit exceeded"},
		"Method":   {reason: "the size of a long text is computed as a method in a loop", rule: "{path: spec.x, cel: 'object.many.map(a, object.long.size())'}", want: "cost limit exceeded"},
		"Grow":     {reason: "long texts are concatenated in a loop", rule: "{path: spec.x, cel: 'object.many.map(a, object.long + object.long == \"\")'}", want: "cost limit exceeded"},
		"Matches":  {reason: "patterns are matched in a loop", rule: "{path: spec.x, cel: 'object.many.map(a, object.long.matches(\"(y+y+)+z\"))'}", want: "cost limit exceeded"},
		"Again":    {reason: "a long text is replaced in a loop", rule: "{path: spec.x, cel: 'object.many.map(a, object.long.replace(\"x\", \"y\") == \"\")'}", want: "cost limit exceeded"},
		"Deep":     {reason: "large objects are compared in a loop", rule: "{path: spec.x, cel: 'object.many.map(a, object == object)'}", want: "cost limit exceeded"},
		"Replace":  {reason: "replaced text must not grow without limit", rule: "{path: spec.x, cel: '" + `"aaaaaaaaaa"` + strings.Repeat(`.replace("a", "aaaaaaaaaa")`, 12) + "'}", want: "replace makes more than"},
		"Shared":   {reason: "values with shared parts must not grow without limit", rule: "{path: spec.x, cel: '[[object,object,object,object,object,object,object,object]].map(a, [a,a,a,a,a,a,a,a,a,a,a,a]).map(b, [b,b,b,b,b,b,b,b,b,b,b,b])'}", want: "the value must have at most 196608 bytes"},
		"Type":     {reason: "JSON has no durations", rule: "{path: spec.x, cel: 'duration(\"1s\")'}", want: "google.protobuf.Duration cannot be in a manifest"},
		"Key":      {reason: "JSON has no keys that are numbers", rule: "{path: spec.x, cel: '{1: 2}'}", want: "the key 1 must be a string"},
		"Huge":     {reason: "JSON of Kubernetes has no integers above 63 bits", rule: "{path: spec.x, cel: '[18446744073709551615u]'}", want: "the number 18446744073709551615 must be at most 9223372036854775807"},
		"NoObject": {reason: "a number has no fields", rule: "{path: spec.replicas.x, value: 1}", want: `the parent of "x" must be an object`},
		"NoList":   {reason: "a number has no items", rule: "{path: 'spec.replicas[0]', value: 1}", want: "the parent of [0] must be a list"},
		"Gap":      {reason: "a list has no gaps", rule: "{path: 'spec.template.spec.containers[4]', value: 1}", want: "index 4 must be at most the length of the list, 1"},
		"Merge":    {reason: "a number cannot be merged", rule: "{path: spec, op: merge, cel: '1'}", want: "the value must be an object with op merge"},
		"Name":     {reason: "another name would be another object", rule: "{path: metadata, op: merge, value: {name: other}}", want: "metadata.name must stay as it is"},
		"Move":     {reason: "another namespace would be another object", rule: "{path: metadata, cel: '{\"name\": \"web\", \"namespace\": \"bar\"}'}", want: "metadata.namespace must stay as it is"},
		"Kind":     {reason: "a merge must not change the kind either", rule: "{path: '', op: merge, value: {kind: ClusterRoleBinding, apiVersion: rbac.authorization.k8s.io/v1}}", want: "apiVersion must stay as it is"},
		"Owner":    {reason: "the garbage collector deletes an object whose owner does not exist", rule: "{path: metadata, op: merge, cel: '{\"ownerReferences\": [{\"uid\": \"1\"}]}'}", want: "metadata.ownerReferences must stay as it is"},
		"Keep":     {reason: "a finalizer would block the deletion of the namespace in the cluster", rule: "{path: '', op: merge, cel: '{\"metadata\": {\"finalizers\": [\"example.com/never\"]}}'}", want: "metadata.finalizers must stay as it is"},
		"NoMeta":   {reason: "without metadata there is no name", rule: "{path: metadata, op: remove}", want: "metadata.name must stay as it is"},
		"NoMap":    {reason: "a number as metadata has no name", rule: "{path: metadata, cel: '1'}", want: "metadata.name must stay as it is"},
	}
	text := web + "many: [" + strings.Repeat("1, ", 999) + "1]\nlong: " + strings.Repeat("y", 10_000)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules, errs := Compile([]v1alpha1.Customization{customize(t, "shop", "c", "rules: [{path: spec.first, value: 1}, "+tc.rule+"]")})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			o := object(t, text)
			err := rules.Apply(o, east())
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "Deployment shop/web: Customization shop/c: spec.rules[1] (path") {
				t.Errorf("%s: got %v, want one with %q and the rule", tc.reason, err, tc.want)
			}
			if diff := cmp.Diff(object(t, text).Object, o.Object); diff != "" {
				t.Errorf("%s: the object was changed: %s", tc.reason, diff)
			}
		})
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, namespace, match string
		want                     bool
	}{
		"All":          {reason: "nothing said is all", namespace: "shop", match: "{}", want: true},
		"System":       {reason: "for all namespaces", namespace: v1alpha1.SystemNamespace, match: "{}", want: true},
		"Elsewhere":    {reason: "of another namespace", namespace: "bar", match: "{}"},
		"Kind":         {reason: "by kind", namespace: "shop", match: "{kinds: [Service, Deployment]}", want: true},
		"Group":        {reason: "with its group", namespace: "shop", match: "{kinds: [Deployment.apps]}", want: true},
		"OtherGroup":   {reason: "of another group", namespace: "shop", match: "{kinds: [Deployment.example.com]}"},
		"OtherKind":    {reason: "of another kind", namespace: "shop", match: "{kinds: [Service]}"},
		"Label":        {reason: "by label", namespace: "shop", match: "{selector: {matchLabels: {app: web}}}", want: true},
		"OtherLabel":   {reason: "by another", namespace: "shop", match: "{selector: {matchLabels: {app: db}}}"},
		"Cluster":      {reason: "by the cluster's", namespace: "shop", match: "{clusterSelector: {matchLabels: {region: eu}}}", want: true},
		"OtherCluster": {reason: "of another", namespace: "shop", match: "{clusterSelector: {matchLabels: {region: us}}}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules, errs := Compile([]v1alpha1.Customization{customize(t, tc.namespace, "c", "match: "+tc.match+"\nrules: [{path: spec.x, value: 1}]")})
			o := object(t, web)
			if err := errors.Join(append(errs, rules.Apply(o, east()))...); err != nil {
				t.Fatal(err)
			}
			if got := field(t, o, "spec.x") != nil; got != tc.want {
				t.Errorf("%s: customized is %v", tc.reason, got)
			}
		})
	}
}

// Those for all namespaces come first, then by name, however they are listed.
func TestOrder(t *testing.T) {
	t.Parallel()
	step := func(namespace, name string) v1alpha1.Customization {
		return customize(t, namespace, name, fmt.Sprintf("rules: [{path: spec.x, cel: 'object.spec.x + %q'}]", name))
	}
	list := []v1alpha1.Customization{step("shop", "d"), step("shop", "c"), step(v1alpha1.SystemNamespace, "b"), step(v1alpha1.SystemNamespace, "a")}
	rules, errs := Compile(list)
	o := object(t, "apiVersion: v1\nkind: X\nmetadata: {name: x, namespace: shop}\nspec: {x: ''}")
	if err := errors.Join(append(errs, rules.Apply(o, east()))...); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"x": "abcd"}, o.Object["spec"]); diff != "" {
		t.Error(diff)
	}
}

// A ClusterNetwork gets the device and the VLAN of each cluster.
func TestNetworksPerCluster(t *testing.T) {
	t.Parallel()
	const network = "apiVersion: danm.io/v1\nkind: ClusterNetwork\nmetadata: {name: storage}\nspec: {NetworkID: storage, NetworkType: macvlan, Options: {host_device: ens3, vlan: 100, cidr: 10.9.0.0/24}}"
	rules, errs := Compile([]v1alpha1.Customization{customize(t, v1alpha1.SystemNamespace, "networks", `
match: {kinds: [ClusterNetwork.danm.io]}
rules:
- {path: spec.Options.host_device, cel: 'cluster.properties.?nic'}
- {path: spec.Options.vlan, cel: 'cluster.properties.?vlan.optMap(v, int(v))'}
`)})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	west := east()
	west.Name, west.Spec.Properties = "west", nil
	cases := map[string]struct {
		reason  string
		cluster *v1alpha1.Cluster
		want    map[string]any
	}{
		"East": {reason: "the cluster has properties", cluster: east(), want: map[string]any{"host_device": "ens4", "vlan": int64(210), "cidr": "10.9.0.0/24"}},
		"West": {reason: "without properties the fields stay unchanged", cluster: west, want: map[string]any{"host_device": "ens3", "vlan": int64(100), "cidr": "10.9.0.0/24"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := object(t, network)
			Prune(o)
			if err := rules.Apply(o, tc.cluster); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(tc.want), field(t, o, "spec.Options")); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestInvalidJSONValue(t *testing.T) {
	t.Parallel()
	c := v1alpha1.Customization{Spec: v1alpha1.CustomizationSpec{Rules: []v1alpha1.Rule{{Path: "a", Value: &apiextensionsv1.JSON{Raw: []byte("{")}}}}}
	if _, errs := Compile([]v1alpha1.Customization{c}); len(errs) != 1 || !strings.Contains(errs[0].Error(), "read value") {
		t.Errorf("got %v", errs)
	}
}

// The Customizations of a namespace share a budget. Those of other namespaces and of the hub's admins do not
// count.
func TestBudget(t *testing.T) {
	t.Parallel()
	many := func(namespace string, n int, spec string) (list []v1alpha1.Customization) {
		for i := range n {
			c := customize(t, namespace, fmt.Sprintf("c%03d", i), spec)
			c.UID, c.CreationTimestamp = types.UID(namespace+c.Name), metav1.Unix(int64(i/2), 0)
			list = append(list, c)
		}
		slices.Reverse(list)
		return list
	}
	cheap, long := "rules: [{path: spec.x, value: 1}]", "rules: [{path: spec.x, cel: '["+strings.Repeat("1,", 1020)+"1]'}]"
	expensive := "rules: [{path: spec.x, cel: 'object.many.all(a, object.many.size() > 0)'}]" // some 6,000
	large := "rules: [{path: spec.x, value: " + strings.Repeat("y", 600_000) + "}]"
	cases := map[string]struct {
		reason string
		list   []v1alpha1.Customization
		first  string // the oldest one that exceeds the budget; "" for none
		want   string
	}{
		"Few":       {"The number is at the limit.", many("shop", maxCustomizations, cheap), "", ""},
		"Many":      {"The youngest ones are rejected.", many("shop", maxCustomizations+3, cheap), "c032", "namespace shop must have at most 32 Customizations"},
		"Admins":    {"The Customizations of the hub's admins have no limit.", many(v1alpha1.SystemNamespace, 2*maxCustomizations, cheap), "", ""},
		"Neighbour": {"Another namespace has a budget of its own.", many("bar", 2*maxCustomizations, cheap), "c032", "namespace bar"},
		"Text":      {"The time of the compilation depends on the size of the expressions.", many("shop", 20, long), "c008", "the expressions in namespace shop must have at most 16384 bytes together"},
		"Cost":      {"The sum of the costs is too high.", many("shop", 30, expensive), "", "the Customizations of namespace shop must cost at most 100000 together"},
		"Values":    {"Values are copied for each object, so their size has a cost.", many("shop", 2, large), "", "the Customizations of namespace shop must cost at most 100000 together"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules, errs := Compile(tc.list)
			for i := range tc.list {
				c := &tc.list[i]
				err := ValidateCustomization(c, tc.list)
				if over := tc.first != "" && c.Name >= tc.first; (err != nil) != over || over && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: %s: got %v, over the budget: %t", tc.reason, c.Name, err, over)
				}
			}
			if (len(errs) > 0) != (tc.first != "") {
				t.Errorf("%s: got %v", tc.reason, errs)
			}
			o := object(t, web+"many: ["+strings.Repeat("1, ", 999)+"1]")
			err := rules.Apply(o, east())
			if fails := tc.want != "" && tc.list[0].Namespace == "shop"; (err != nil) != fails || fails && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
