// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Scales tells whether a HorizontalPodAutoscaler scales an object of its namespace.
func Scales(autoscaler *unstructured.Unstructured, kind schema.GroupKind, name string) bool {
	target, _, _ := unstructured.NestedStringMap(autoscaler.Object, "spec", "scaleTargetRef")
	return schema.FromAPIVersionAndKind(target["apiVersion"], target["kind"]).GroupKind() == kind && target["name"] == name
}

// BoundReplicas changes a HorizontalPodAutoscaler in place, so that it requests at least least replicas, and no others
// if exact is true. It never requests more than the autoscaler's own maximum.
func BoundReplicas(autoscaler *unstructured.Unstructured, least int32, exact bool) error {
	if most, ok := specInt32(autoscaler, "maxReplicas"); ok {
		least = min(least, most)
	}
	if own, ok := specInt32(autoscaler, "minReplicas"); ok && !exact {
		least = max(least, own)
	}
	fields := []string{"minReplicas"}
	if exact {
		fields = append(fields, "maxReplicas")
	}
	for _, field := range fields {
		if err := unstructured.SetNestedField(autoscaler.Object, int64(least), "spec", field); err != nil {
			return fmt.Errorf("set spec.%s of %s %s/%s: %w", field, autoscaler.GetKind(), autoscaler.GetNamespace(), autoscaler.GetName(), err)
		}
	}
	return nil
}
