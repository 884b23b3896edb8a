// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// pruneService takes away what the hub's API server allocated. A node port stays when
// somebody asked for it, which managedFields tell.
func pruneService(object *unstructured.Unstructured, owned map[string]bool) {
	spec, _ := object.Object["spec"].(map[string]any)
	if spec["clusterIP"] != "None" { // headless is asked for, not allocated
		delete(spec, "clusterIP")
		delete(spec, "clusterIPs")
		delete(spec, "ipFamilies")
		if spec["ipFamilyPolicy"] == "SingleStack" {
			delete(spec, "ipFamilyPolicy")
		}
	}
	delete(spec, "healthCheckNodePort")
	ports, _ := spec["ports"].([]any)
	for _, p := range ports {
		if p, ok := p.(map[string]any); ok && !owned[portKey(p)] {
			delete(p, "nodePort")
		}
	}
}

// portKey tells a Service's ports apart, as server-side apply does.
func portKey(port map[string]any) string {
	protocol := port["protocol"]
	if protocol == nil {
		protocol = "TCP"
	}
	return fmt.Sprint(port["port"], "/", protocol)
}

// portOwners are the ports of a Service whose node port some client set.
func portOwners(object *unstructured.Unstructured) map[string]bool {
	owned := map[string]bool{}
	for _, entry := range object.GetManagedFields() {
		if entry.FieldsV1 == nil || entry.Subresource != "" {
			continue
		}
		fields := map[string]any{}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			continue // an owner that cannot be read owns nothing
		}
		ports, _, err := unstructured.NestedMap(fields, "f:spec", "f:ports")
		if err != nil {
			continue
		}
		for key, of := range ports {
			port := map[string]any{}
			raw, isKey := strings.CutPrefix(key, "k:")
			set, _ := of.(map[string]any)
			if _, asked := set["f:nodePort"]; isKey && asked && json.Unmarshal([]byte(raw), &port) == nil {
				owned[portKey(port)] = true
			}
		}
	}
	return owned
}

// pruneToken takes away the token that admission at the hub mounted into a Pod: it is
// good for nothing elsewhere, and the cluster mounts its own.
func pruneToken(object *unstructured.Unstructured) {
	spec, _ := object.Object["spec"].(map[string]any)
	prune := func(m map[string]any, field string) {
		list, ok := m[field].([]any)
		if !ok {
			return
		}
		m[field] = slices.DeleteFunc(list, func(v any) bool {
			v2, _ := v.(map[string]any)
			name, _ := v2["name"].(string)
			return strings.HasPrefix(name, "kube-api-access-")
		})
	}
	prune(spec, "volumes")
	for _, field := range []string{"containers", "initContainers"} {
		list, _ := spec[field].([]any)
		for _, c := range list {
			if c, ok := c.(map[string]any); ok {
				prune(c, "volumeMounts")
			}
		}
	}
}
