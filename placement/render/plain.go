// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"math"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// plain turns an expression's value into what JSON has. It counts, as values may share
// parts, and so be small in memory and endless when written down.
func plain(value ref.Val, left *int) (any, error) {
	if *left -= 2; *left < 0 {
		return nil, fmt.Errorf("cel: the value is larger than %d bytes", v1alpha1.MaxManifestBytes)
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
			return nil, fmt.Errorf("cel: %d is too large a number", v)
		}
		return int64(v), nil
	case types.Double:
		return wholeNumbers(float64(v)), nil
	case types.String:
		*left -= len(v)
		return string(v), nil
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			item, err := plain(it.Next(), left)
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
				return nil, fmt.Errorf("cel: the key %v is no string", key.Value())
			}
			item, err := plain(v.Get(key), left)
			if err != nil {
				return nil, err
			}
			*left -= len(name)
			m[string(name)] = item
		}
		return m, nil
	}
	return nil, fmt.Errorf("cel: a value of the type %s cannot be in a manifest: make a string of it", value.Type().TypeName())
}

// wholeNumbers makes integers of the numbers of JSON that are whole, as the API server
// reads them.
func wholeNumbers(value any) any {
	switch v := value.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
	case map[string]any:
		for key, item := range v {
			v[key] = wholeNumbers(item)
		}
	case []any:
		for i, item := range v {
			v[i] = wholeNumbers(item)
		}
	}
	return value
}
