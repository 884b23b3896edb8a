// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
)

// template is the template of a workload under construction.
type template struct{ pod *corev1.PodTemplateSpec }

// templateOf returns the template of a workload in the manifests.
func templateOf(workload *unstructured.Unstructured) (*corev1.PodTemplateSpec, error) {
	fields, _, err := unstructured.NestedMap(workload.Object, "spec", "template")
	if err != nil {
		return nil, fmt.Errorf("read template of %s: %w", workload.GetName(), err)
	}
	pod := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(fields, pod, true); err != nil {
		return nil, fmt.Errorf("decode template of %s: %w", workload.GetName(), err)
	}
	return pod, nil
}

// container returns a container by name, or nil. The default template has the program's.
func (t *template) container(name string) *corev1.Container {
	for i := range t.pod.Spec.Containers {
		if t.pod.Spec.Containers[i].Name == name {
			return &t.pod.Spec.Containers[i]
		}
	}
	return nil
}

// merge merges a patch as kubectl patch does by default. It rejects fields that a PodTemplateSpec does not
// have, instead of ignoring them.
func (t *template) merge(patch *runtime.RawExtension) error {
	if patch == nil || len(patch.Raw) == 0 || string(patch.Raw) == "null" {
		return nil
	}
	original, err := json.Marshal(t.pod)
	if err != nil {
		return fmt.Errorf("encode the default template: %w", err)
	}
	var fields map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(patch.Raw, &fields); err != nil {
		return fmt.Errorf("must be a patch of a PodTemplateSpec: %w", err)
	}
	deletionsToNull(fields)
	text, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, text, corev1.PodTemplateSpec{})
	if err != nil {
		return fmt.Errorf("must be a patch of a PodTemplateSpec: %w", err)
	}
	pod := &corev1.PodTemplateSpec{}
	strict, err := kjson.UnmarshalStrict(merged, pod)
	if err := errors.Join(append(strict, err)...); err != nil {
		return fmt.Errorf("must be a patch of a PodTemplateSpec: %w", err)
	}
	t.pod = pod
	return nil
}

// deletionsToNull replaces objects that shall be deleted by null, which the definition of Installations cannot
// allow. The directive alone would leave an empty object, such as a probe that Kubernetes rejects.
func deletionsToNull(value any) {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			deletionsToNull(element)
		}
	case map[string]any:
		for key, element := range v {
			if fields, ok := element.(map[string]any); ok && fields["$patch"] == "delete" {
				v[key] = nil
				continue
			}
			deletionsToNull(element)
		}
	}
}

// addArgument adds an argument to a container that does not have it.
func (t *template) addArgument(container, argument string) {
	c := t.container(container)
	if !slices.Contains(c.Args, argument) {
		c.Args = append(c.Args, argument)
	}
}

// setEnv sets a variable of a container.
func (t *template) setEnv(container, name, value string) {
	c := t.container(container)
	for i := range c.Env {
		if c.Env[i].Name == name {
			c.Env[i] = corev1.EnvVar{Name: name, Value: value}
			return
		}
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
}

// removeMetrics removes what opens the port for metrics.
func (t *template) removeMetrics() {
	for i := range t.pod.Spec.Containers {
		c := &t.pod.Spec.Containers[i]
		if c.Name != nodeName && c.Name != controllerName {
			continue
		}
		c.Args = slices.DeleteFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--metrics-address=") })
		c.Ports = slices.DeleteFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == "metrics" })
	}
}

// store writes the template into the workload, and returns its hash, which the Pods have in an annotation.
func (t *template) store(workload *unstructured.Unstructured) (string, error) {
	delete(t.pod.Annotations, TemplateAnnotation)
	text, err := json.Marshal(t.pod)
	if err != nil {
		return "", fmt.Errorf("encode template of %s: %w", workload.GetName(), err)
	}
	sum := sha256.Sum256(text)
	hash := hex.EncodeToString(sum[:8])
	if t.pod.Annotations == nil {
		t.pod.Annotations = map[string]string{}
	}
	t.pod.Annotations[TemplateAnnotation] = hash
	if text, err = json.Marshal(t.pod); err != nil {
		return "", fmt.Errorf("encode template of %s: %w", workload.GetName(), err)
	}
	var fields map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(bytes.TrimSpace(text), &fields); err != nil {
		return "", fmt.Errorf("decode template of %s: %w", workload.GetName(), err)
	}
	// An empty object would claim a field that nobody has set.
	removeEmpty(fields)
	return hash, unstructured.SetNestedMap(workload.Object, fields, "spec", "template")
}

// removeEmpty removes null, which Go's types write for what is not set, and the empty resources of a container.
func removeEmpty(value any) {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			removeEmpty(element)
		}
	case map[string]any:
		for key, element := range v {
			fields, isObject := element.(map[string]any)
			if element == nil || isObject && len(fields) == 0 && key == "resources" {
				delete(v, key)
				continue
			}
			removeEmpty(element)
		}
	}
}
