// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Limits of expressions: a tenth of the API server's limit for one expression, well below 0.1 s, because each
// expression runs for each object and cluster.
const (
	// maxCost is the limit of one expression, and of all rules of a namespace together.
	maxCost    = 100_000
	maxNesting = 2
)

// errNoValue is returned for an expression with the value optional.none(): the field stays as it is.
var errNoValue = errors.New("no value")

// newCELEnv returns the environment of expressions: CEL's standard functions and macros, optional values, and
// replace. It has no clock and no random values.
func newCELEnv() (*cel.Env, error) {
	env, err := cel.NewEnv(
		cel.Variable("object", cel.DynType),
		cel.Variable("cluster", cel.MapType(cel.StringType, cel.DynType)),
		cel.OptionalTypes(),
		cel.CrossTypeNumericComparisons(true),
		cel.ASTValidators(cel.ValidateComprehensionNestingLimit(maxNesting), cel.ValidateRegexLiterals()),
		replaceFunction(),
	)
	if err != nil {
		return nil, fmt.Errorf("create the CEL environment: %w", err)
	}
	return env, nil
}

// replaceFunction is text.replace(old, new) with a limit on the size of its result. cel-go's function has
// none, and a few calls in a row could exhaust the memory.
func replaceFunction() cel.EnvOption {
	return cel.Function("replace", cel.MemberOverload("string_replace_string_string",
		[]*cel.Type{cel.StringType, cel.StringType, cel.StringType}, cel.StringType,
		cel.FunctionBinding(func(args ...ref.Val) ref.Val {
			text, _ := args[0].Value().(string)
			from, _ := args[1].Value().(string)
			to, _ := args[2].Value().(string)
			if len(text)+strings.Count(text, from)*(len(to)-len(from)) > v1alpha1.MaxManifestBytes {
				return types.NewErr("replace makes more than %d bytes", v1alpha1.MaxManifestBytes)
			}
			return types.String(strings.ReplaceAll(text, from, to))
		})))
}

// compileCEL compiles an expression to a program.
func compileCEL(env *cel.Env, expression string) (cel.Program, error) {
	ast, issues := env.Compile(expression)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("cel: %w", err)
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.CostTracking(costEstimator{}))
	if err != nil {
		return nil, fmt.Errorf("cel: %w", err)
	}
	return program, nil
}

// costEstimator computes the cost of calls by the size of their arguments. For variables of dynamic type, CEL
// counts each call as 1, so that a loop could run for seconds.
type costEstimator struct{}

// bytesPerCost is how many bytes of text have the cost 1, as CEL counts text of a known type.
const bytesPerCost = 10

// CallCost implements interpreter.ActualCostEstimator.
func (costEstimator) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	seen := 0
	switch function {
	case overloads.Matches:
		return nil // CEL's own cost includes the size of the pattern
	case operators.Equals, operators.NotEquals, operators.In:
		left := v1alpha1.MaxManifestBytes
		for _, value := range args {
			if _, err := celToJSON(value, &left); err != nil {
				break // too large, or no JSON: the part until here counts
			}
		}
		seen = v1alpha1.MaxManifestBytes - left
	default:
		for _, value := range append(slices.Clip(args), result) {
			if text, ok := value.(types.String); ok {
				seen += len(text)
			}
		}
	}
	cost := uint64(1 + seen/bytesPerCost)
	return &cost
}

// evaluateCEL runs an expression and returns its value, with the types that JSON decodes to and without parts
// shared with the object, and its cost. The error is errNoValue for optional.none().
func evaluateCEL(program cel.Program, object *unstructured.Unstructured, cluster *v1alpha1.Cluster) (value any, cost uint64, err error) {
	result, details, err := program.Eval(map[string]any{
		"object": object.Object,
		"cluster": map[string]any{
			"name": cluster.Name, "labels": stringMap(cluster.Labels), "annotations": stringMap(cluster.Annotations),
			"properties": stringMap(cluster.Spec.Properties),
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
			return nil, cost, errNoValue
		}
		result = optional.GetValue()
	}
	left := v1alpha1.MaxManifestBytes
	value, err = celToJSON(result, &left)
	return value, cost, err
}

// stringMap converts a map to one that expressions can use; it is never nil.
func stringMap[S ~string](m map[string]S) map[string]string {
	all := make(map[string]string, len(m))
	for key, value := range m {
		all[key] = string(value)
	}
	return all
}

// celToJSON converts a value to the types that JSON decodes to. left is the number of bytes that the value may
// still have: values can share parts, and so be small in memory and huge as JSON.
func celToJSON(value ref.Val, left *int) (any, error) {
	if *left -= 2; *left < 0 {
		return nil, fmt.Errorf("cel: the value must have at most %d bytes", v1alpha1.MaxManifestBytes)
	}
	switch v := value.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		if v > math.MaxInt64 {
			return nil, fmt.Errorf("cel: the number %d must be at most 9223372036854775807", v)
		}
		return int64(v), nil
	case types.Double:
		return integersFromFloats(float64(v)), nil
	case types.String:
		*left -= len(v)
		return string(v), nil
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			item, err := celToJSON(it.Next(), left)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		return list, nil
	case traits.Mapper:
		m := map[string]any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			name, ok := key.(types.String)
			if !ok {
				return nil, fmt.Errorf("cel: the key %v must be a string", key.Value())
			}
			item, err := celToJSON(v.Get(key), left)
			if err != nil {
				return nil, err
			}
			*left -= len(name)
			m[string(name)] = item
		}
		return m, nil
	}
	return nil, fmt.Errorf("cel: a value of the type %s cannot be in a manifest: convert it to a string", value.Type().TypeName())
}

// integersFromFloats converts floats without a fraction to integers, as the API server decodes them.
func integersFromFloats(value any) any {
	switch v := value.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
	case map[string]any:
		for key, item := range v {
			v[key] = integersFromFloats(item)
		}
	case []any:
		for i, item := range v {
			v[i] = integersFromFloats(item)
		}
	}
	return value
}
