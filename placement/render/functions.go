// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// replaceFunction is text.replace(old, new), with a bound on what it makes: cel-go's own
// has none, and a few of them in a row fill any memory.
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

// weights are what calls cost, by the size of what they look at. Of a variable whose type
// is not known before, CEL counts 1 for any call; within a loop that is seconds.
type weights struct{}

// bytesPerCost is how many bytes of text count 1, as CEL counts text of a known type.
const bytesPerCost = 10

// CallCost implements interpreter.ActualCostEstimator.
func (weights) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	seen := 0
	switch function {
	case overloads.Matches:
		return nil // the size of the pattern counts, too, and its type is known
	case operators.Equals, operators.NotEquals, operators.In:
		left := v1alpha1.MaxManifestBytes
		for _, value := range args {
			if _, err := plain(value, &left); err != nil {
				break // too large, or no JSON: what was seen until then counts
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
