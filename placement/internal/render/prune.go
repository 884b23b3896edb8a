// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Prune takes from an object, in place, what a cluster owns and what is the hub's
// alone. Finalizers, owners and kubectl's record of the last apply go, too: whoever
// they are for is at the hub.
func Prune(object *unstructured.Unstructured) {
	owned := requestedNodePorts(object)
	delete(object.Object, "status")
	if meta, ok := object.Object["metadata"].(map[string]any); ok {
		keepOnly(meta, "name", "namespace", "labels", "annotations")
		pruneAnnotations(meta)
	}
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Service"}:
		pruneService(object, owned)
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		pruneJob(object)
	case schema.GroupKind{Kind: "Pod"}:
		// A cluster decides the first two; the last cannot be created, only added.
		for _, field := range []string{"nodeName", "priority", "ephemeralContainers"} {
			unstructured.RemoveNestedField(object.Object, "spec", field)
		}
		pruneTokenVolumes(object)
	case schema.GroupKind{Kind: "ServiceAccount"}:
		delete(object.Object, "secrets") // tokens of the hub
	case schema.GroupKind{Kind: "Namespace"}:
		delete(object.Object, "spec") // its finalizer
	}
	if t, ok := podTemplate(object); ok {
		if meta, ok := t["metadata"].(map[string]any); ok {
			delete(meta, "creationTimestamp")
		}
	}
}

// pruneAnnotations takes away annotations that controllers at the hub or our own
// programs read or write.
func pruneAnnotations(meta map[string]any) {
	annotations, _ := meta["annotations"].(map[string]any)
	maps.DeleteFunc(annotations, func(key string, _ any) bool {
		switch key {
		case "kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision",
			"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller",
			"volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-provisioner",
			v1alpha1.ClustersAnnotation, v1alpha1.SourceUIDAnnotation, v1alpha1.HubUIDAnnotation:
			return true
		}
		return false
	})
	if len(annotations) == 0 {
		delete(meta, "annotations")
	}
}

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

// requestedNodePorts are the ports of a Service whose node port some client set.
func requestedNodePorts(object *unstructured.Unstructured) map[string]bool {
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

// pruneJob takes away the selector that the API server made of the Job's UID at the
// hub, and its labels in the template: the cluster's makes its own.
func pruneJob(object *unstructured.Unstructured) {
	if manual, _, _ := unstructured.NestedBool(object.Object, "spec", "manualSelector"); manual {
		return
	}
	unstructured.RemoveNestedField(object.Object, "spec", "selector")
	for _, at := range [][]string{{"spec", "template", "metadata"}, {"metadata"}} {
		meta, _, _ := unstructured.NestedFieldNoCopy(object.Object, at...)
		if meta, ok := meta.(map[string]any); ok {
			labels, _ := meta["labels"].(map[string]any)
			maps.DeleteFunc(labels, func(key string, _ any) bool {
				switch strings.TrimPrefix(key, "batch.kubernetes.io/") {
				case "controller-uid", "job-name":
					return true
				}
				return false
			})
		}
	}
}

// pruneTokenVolumes takes away the token that admission at the hub mounted into a Pod: it is
// good for nothing elsewhere, and the cluster mounts its own.
func pruneTokenVolumes(object *unstructured.Unstructured) {
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

// keepOnly takes away all fields but some.
func keepOnly(m map[string]any, fields ...string) {
	kept := make(map[string]any, len(fields))
	for _, field := range fields {
		if value, ok := m[field]; ok {
			kept[field] = value
		}
	}
	clear(m)
	maps.Copy(m, kept)
}
