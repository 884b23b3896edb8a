// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"maps"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
)

// policyCosts counts how often the policies on Nodes ask the authorizer about a write.
type policyCosts struct {
	*testing.T
	env *cel.Env
	// asked is the number of questions, and allowed the answer to all.
	asked   int
	allowed bool
}

func newPolicyCosts(t *testing.T) *policyCosts {
	t.Helper()
	p := &policyCosts{T: t}
	options := []cel.EnvOption{ext.Strings()}
	for _, name := range []string{"object", "oldObject", "request", "authorizer", "variables"} {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	for name, takesText := range map[string]bool{"group": true, "resource": true, "check": true, "allowed": false} {
		parameters := []*cel.Type{cel.DynType}
		if takesText {
			parameters = append(parameters, cel.StringType)
		}
		options = append(options, cel.Function(name, cel.MemberOverload("fake_"+name, parameters, cel.DynType, cel.FunctionBinding(func(args ...ref.Val) ref.Val {
			switch name {
			case "check":
				p.asked++
			case "allowed":
				return types.Bool(p.allowed)
			}
			return args[0]
		}))))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		t.Fatal(err)
	}
	p.env = env
	return p
}

// evaluate returns the value of an expression.
func (p *policyCosts) evaluate(expression string, input map[string]any) any {
	p.Helper()
	ast, issues := p.env.Compile(expression)
	if issues.Err() != nil {
		p.Fatalf("%s\n%v", expression, issues.Err())
	}
	program, err := p.env.Program(ast)
	if err != nil {
		p.Fatal(err)
	}
	value, _, err := program.Eval(input)
	if err != nil {
		p.Fatalf("%s\n%v", expression, err)
	}
	return value
}

// review evaluates a policy as the API server does: all conditions, and, if all hold, the validations. It reports whether
// the policy accepts the write.
func (p *policyCosts) review(policy *unstructured.Unstructured, input map[string]any) bool {
	p.Helper()
	expressions := func(field, key string) (all [][2]string) {
		list, _, err := unstructured.NestedSlice(policy.Object, "spec", field)
		if err != nil {
			p.Fatal(err)
		}
		for _, item := range list {
			fields, ok := item.(map[string]any)
			if !ok {
				p.Fatalf("%s has a %T", field, item)
			}
			name, _ := fields[key].(string)
			text, _ := fields["expression"].(string)
			all = append(all, [2]string{name, text})
		}
		return all
	}
	matches := true
	for _, condition := range expressions("matchConditions", "name") {
		matches = p.evaluate(condition[1], input) == types.True && matches
	}
	if !matches {
		return true
	}
	variables := map[string]any{}
	input = maps.Clone(input)
	input["variables"] = variables
	for _, variable := range expressions("variables", "name") {
		variables[variable[0]] = p.evaluate(variable[1], input)
	}
	accepted := true
	for _, validation := range expressions("validations", "message") {
		accepted = p.evaluate(validation[1], input) == types.True && accepted
	}
	return accepted
}

// kubelets write their Nodes all the time: such a write must not ask the authorizer, which may be a server elsewhere.
func TestWritesOfKubeletsAskNoAuthorizer(t *testing.T) {
	t.Parallel()
	folder, err := source.Path("deployments", "admission")
	if err != nil {
		t.Fatal(err)
	}
	policies, err := apitest.ReadManifests(folder)
	if err != nil {
		t.Fatal(err)
	}
	labels := func(more ...string) map[string]any {
		all := map[string]any{"zone": "x", "nics.danm.io/ens4": ""}
		for _, label := range more {
			all[label] = ""
		}
		return all
	}
	before := map[string]any{"metadata": map[string]any{"labels": labels()}, "spec": map[string]any{}}
	cases := map[string]struct {
		reason   string
		groups   []any
		allowed  bool
		object   map[string]any
		asked    int
		accepted bool
	}{
		"Heartbeat": {reason: "kubelet writes its status.", groups: []any{"system:nodes", "system:authenticated"}, accepted: true,
			object: map[string]any{"metadata": map[string]any{"labels": labels()}, "spec": map[string]any{}, "status": map[string]any{"phase": "x"}}},
		"Label": {reason: "kubelet sets another label.", groups: []any{"system:nodes"}, accepted: true,
			object: map[string]any{"metadata": map[string]any{"labels": labels("a")}, "spec": map[string]any{}}},
		"NIC": {reason: "The authorizer tells whether it is an administrator who labels NICs.", groups: []any{"system:nodes"}, asked: 2,
			object: map[string]any{"metadata": map[string]any{"labels": labels("nics.danm.io/ens5")}, "spec": map[string]any{}}},
		"OtherController": {reason: "One question tells that it is not Patchbay's.", groups: []any{"system:serviceaccounts"}, accepted: true, asked: 1,
			object: map[string]any{"metadata": map[string]any{"labels": labels("a")}, "spec": map[string]any{"taints": "x"}}},
		"NoGroups": {reason: "The field may be missing.", accepted: true, asked: 1,
			object: map[string]any{"metadata": map[string]any{}, "spec": map[string]any{}, "status": "x"}},
		"Administrator": {reason: "Two questions tell that it has all rights.", groups: []any{"system:masters"}, allowed: true, accepted: true, asked: 3,
			object: map[string]any{"metadata": map[string]any{"labels": labels("nics.danm.io/ens5")}, "spec": map[string]any{}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPolicyCosts(t)
			p.allowed = tc.allowed
			old := before
			if name == "NoGroups" {
				old = map[string]any{"metadata": map[string]any{}, "spec": map[string]any{}}
			}
			user := map[string]any{}
			if tc.groups != nil {
				user["groups"] = tc.groups
			}
			input := map[string]any{"object": tc.object, "oldObject": old, "authorizer": "authorizer", "request": map[string]any{"userInfo": user}}
			accepted, reviewed := true, 0
			for _, policy := range policies {
				if policy.GetKind() != "ValidatingAdmissionPolicy" || policy.GetName() != "node-nic-labels.danm.io" && policy.GetName() != "controller-nodes.danm.io" {
					continue
				}
				reviewed++
				accepted = p.review(policy, input) && accepted
			}
			if reviewed != 2 {
				t.Fatalf("the manifests have %d policies on Nodes, want 2", reviewed)
			}
			if p.asked != tc.asked || accepted != tc.accepted {
				t.Errorf("%s\nthe authorizer was asked %d times, and the write was accepted: %t; want %d and %t", tc.reason, p.asked, accepted, tc.asked, tc.accepted)
			}
		})
	}
}
