// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Limits of expressions: a tenth of what the API server gives one of its own, well below
// 0.1 s, as each is run for each object and cluster.
const (
	// maxCost is of one expression, and of all rules of a namespace together.
	maxCost    = 100_000
	maxNesting = 2
)

// errNothing says that an expression's value is optional.none(): leave the field.
var errNothing = errors.New("no value")

// newEnv is what expressions may use: CEL's standard functions and macros, optional
// values, and replace. There is no clock in it and nothing random.
func newEnv() (*cel.Env, error) {
	env, err := cel.NewEnv(
		cel.Variable("object", cel.DynType),
		cel.Variable("cluster", cel.MapType(cel.StringType, cel.DynType)),
		cel.OptionalTypes(),
		cel.CrossTypeNumericComparisons(true),
		cel.ASTValidators(cel.ValidateComprehensionNestingLimit(maxNesting), cel.ValidateRegexLiterals()),
		replaceFunction(),
	)
	if err != nil {
		return nil, fmt.Errorf("make environment of expressions: %w", err)
	}
	return env, nil
}

// compileCEL makes a program of an expression.
func compileCEL(env *cel.Env, expression string) (cel.Program, error) {
	ast, issues := env.Compile(expression)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("cel: %w", err)
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.CostTracking(weights{}))
	if err != nil {
		return nil, fmt.Errorf("cel: %w", err)
	}
	return program, nil
}

// evaluate runs an expression and returns its value as JSON has it, with nothing in
// common with the object, and what it cost. The error is errNothing for no value.
func evaluate(program cel.Program, object *unstructured.Unstructured, cluster *v1alpha1.Cluster) (value any, cost uint64, err error) {
	result, details, err := program.Eval(map[string]any{
		"object": object.Object,
		"cluster": map[string]any{
			"name": cluster.Name, "labels": values(cluster.Labels), "annotations": values(cluster.Annotations),
			"properties": values(cluster.Spec.Properties),
		},
	})
	if actual := details.ActualCost(); actual != nil {
		cost = *actual
	}
	if err != nil {
		return nil, cost, fmt.Errorf("cel: %w", err)
	}
	if optional, ok := result.(*types.Optional); ok {
		if !optional.HasValue() {
			return nil, cost, errNothing
		}
		result = optional.GetValue()
	}
	left := v1alpha1.MaxManifestBytes
	value, err = plain(result, &left)
	return value, cost, err
}

// values is a map that expressions can look into.
func values[S ~string](m map[string]S) map[string]string {
	all := make(map[string]string, len(m))
	for key, value := range m {
		all[key] = string(value)
	}
	return all
}
