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

// Prune removes from an object, in place, the fields that a cluster owns and those that are for the hub only,
// such as finalizers, owners and kubectl's annotation with the last applied configuration.
func Prune(object *unstructured.Unstructured) {
	nodePorts := requestedNodePorts(object)
	delete(object.Object, "status")
	if meta, ok := object.Object["metadata"].(map[string]any); ok {
		keepOnly(meta, "name", "namespace", "labels", "annotations")
		pruneAnnotations(meta)
	}
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Service"}:
		pruneService(object, nodePorts)
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		pruneJob(object)
	case schema.GroupKind{Kind: "Pod"}:
		// A cluster sets the first two fields; the last one can only be added to existing Pods.
		for _, field := range []string{"nodeName", "priority", "ephemeralContainers"} {
			unstructured.RemoveNestedField(object.Object, "spec", field)
		}
		pruneTokenVolumes(object)
	case schema.GroupKind{Kind: "ServiceAccount"}:
		delete(object.Object, "secrets") // tokens for the hub
	case schema.GroupKind{Kind: "Namespace"}:
		delete(object.Object, "spec") // it has the namespace's finalizer
	}
	if t, ok := podTemplate(object); ok {
		if meta, ok := t["metadata"].(map[string]any); ok {
			delete(meta, "creationTimestamp")
		}
	}
}

// pruneAnnotations removes annotations of kubectl, of controllers at the hub and of placement.
func pruneAnnotations(meta map[string]any) {
	annotations, _ := meta["annotations"].(map[string]any)
	maps.DeleteFunc(annotations, func(key string, _ any) bool {
		switch key {
		case "kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision",
			"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller",
			"volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-provisioner",
			v1alpha1.ClustersAnnotation, v1alpha1.ConflictAnnotation, v1alpha1.OnDeleteAnnotation, v1alpha1.SourceUIDAnnotation, v1alpha1.HubUIDAnnotation:
			return true
		}
		return false
	})
	if len(annotations) == 0 {
		delete(meta, "annotations")
	}
}

// pruneService removes what the hub's API server allocated. requested are the ports whose node port a client
// set: these stay.
func pruneService(object *unstructured.Unstructured, requested map[string]bool) {
	spec, _ := object.Object["spec"].(map[string]any)
	if spec["clusterIP"] != "None" { // None is requested, not allocated
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
		if p, ok := p.(map[string]any); ok && !requested[portKey(p)] {
			delete(p, "nodePort")
		}
	}
}

// portKey identifies a port of a Service, as server-side apply does.
func portKey(port map[string]any) string {
	protocol := port["protocol"]
	if protocol == nil {
		protocol = "TCP"
	}
	return fmt.Sprint(port["port"], "/", protocol)
}

// requestedNodePorts returns the ports of a Service whose node port a client set, according to managedFields.
func requestedNodePorts(object *unstructured.Unstructured) map[string]bool {
	requested := map[string]bool{}
	for _, entry := range object.GetManagedFields() {
		if entry.FieldsV1 == nil || entry.Subresource != "" {
			continue
		}
		fields := map[string]any{}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			continue // cannot be: the API server wrote it
		}
		ports, _, err := unstructured.NestedMap(fields, "f:spec", "f:ports")
		if err != nil {
			continue
		}
		for key, of := range ports {
			port := map[string]any{}
			raw, isKey := strings.CutPrefix(key, "k:")
			set, _ := of.(map[string]any)
			if _, ok := set["f:nodePort"]; isKey && ok && json.Unmarshal([]byte(raw), &port) == nil {
				requested[portKey(port)] = true
			}
		}
	}
	return requested
}

// pruneJob removes the selector that the hub's API server generated from the Job's UID, and its labels in the
// template: the cluster's API server generates its own. It also removes the time after which a finished Job is
// deleted: the hub's controller deletes the Job at the hub, which orders its removal. A cluster that deleted it before
// its end is reported would leave the hub without a result.
func pruneJob(object *unstructured.Unstructured) {
	unstructured.RemoveNestedField(object.Object, "spec", "ttlSecondsAfterFinished")
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
			if len(labels) == 0 { // the API server drops an empty map from a Work, which would differ each time
				delete(meta, "labels")
			}
		}
	}
}

// pruneTokenVolumes removes the token volume that admission at the hub added to a Pod: the token is valid for
// the hub only, and the cluster adds its own.
func pruneTokenVolumes(object *unstructured.Unstructured) {
	spec, _ := object.Object["spec"].(map[string]any)
	prune := func(m map[string]any, field string) {
		list, ok := m[field].([]any)
		if !ok {
			return
		}
		m[field] = slices.DeleteFunc(list, func(v any) bool {
			item, _ := v.(map[string]any)
			name, _ := item["name"].(string)
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

// keepOnly removes all other fields.
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
