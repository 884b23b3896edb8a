// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

// applyPatch returns the object after the operations of a JSON patch (RFC 6902), and its name, which a
// patch may change.
func applyPatch(object map[string]any, operations []byte) (patched map[string]any, name string, err error) {
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return nil, "", fmt.Errorf("must be a list of JSON patch operations (RFC 6902): %w", err)
	}
	data, err := json.Marshal(object)
	if err != nil {
		return nil, "", fmt.Errorf("encode the resolved template: %w", err)
	}
	for i := range patch {
		if data, err = patch[i : i+1].Apply(data); err != nil {
			return nil, "", fmt.Errorf("operation %d: must apply to the resolved template: %w", i, err)
		}
	}
	document, err := decode(data)
	if err != nil {
		return nil, "", err
	}
	t, err := newTemplate("", document)
	if err != nil {
		return nil, "", fmt.Errorf("the result: %w", err)
	}
	return t.Object, t.Name, nil
}
