// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
)

// networkGroup is the API group of our networks. Of their statuses little travels: the
// bitmap would make every claim of an address a write at the hub.
const networkGroup = "danm.io"

// travels tells whether a field of a network's status comes to the hub.
func travels(field string) bool {
	return field == "conditions" || field == "allocated" || field == "capacity"
}

// other is the status of an object of a kind that nobody here knows: what all clusters
// have in common, conditions brought together, observedGeneration translated. Nothing
// is there that no cluster has, so a status of the kind's schema comes of statuses of it.
func other(in *input) map[string]any {
	status := agreed(in.rows)
	conditions := in.merged()
	if len(status) == 0 && len(conditions) == 0 {
		return nil
	}
	for _, row := range in.rows {
		if _, ok := row.Status["observedGeneration"]; ok {
			status["observedGeneration"] = observed(in.object, in.rows)
		}
	}
	in.setConditions(status, conditions)
	return status
}

// agreed are the fields that all rows have, with the same values; conditions and
// observedGeneration are left out.
func agreed(rows []Row) map[string]any {
	if len(rows) == 0 {
		return map[string]any{}
	}
	same := maps.Clone(rows[0].Status)
	maps.DeleteFunc(same, func(field string, value any) bool {
		for _, row := range rows {
			if other, ok := row.Status[field]; !ok || !reflect.DeepEqual(value, other) {
				return true
			}
		}
		return field == "conditions" || field == "observedGeneration"
	})
	if same == nil {
		return map[string]any{}
	}
	return runtime.DeepCopyJSON(same)
}
