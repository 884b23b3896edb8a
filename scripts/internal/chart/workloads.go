// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// part is a program that the chart installs.
type part struct {
	// name in the values.
	name string
	// kind and program are those of the workload.
	kind, program string
}

func parts() []part {
	return []part{
		{"node", "DaemonSet", "patchbayd"},
		{"controller", "Deployment", "patchbay-controller"},
		{"placementAgent", "Deployment", "patchbay-agent"},
	}
}

// Values that switch objects on and off.
const (
	agentEnabled = "((.Values.parts | default dict).placementAgent | default dict).enabled"
	tenantRoles  = `dig "tenantRoles" true (.Values.features | default dict)`
)

// workloadFiles returns the generated files of the chart of the programs.
func (r Release) workloadFiles(deployments string) (map[string][]byte, error) {
	networks, err := render(filepath.Join(deployments, "workloads"))
	if err != nil {
		return nil, err
	}
	agent, err := render(filepath.Join(deployments, "placement"))
	if err != nil {
		return nil, err
	}
	// Helm does not own the namespace of its release, and the definitions have a chart of their own.
	others := func(o object) bool {
		return o.kind() == "CustomResourceDefinition" || o.kind() == "Namespace" && o.name() == systemNamespace
	}
	networks, agent = without(networks, others), without(agent, others)
	files, err := templates("templates", networks, "")
	if err != nil {
		return nil, err
	}
	agentFiles, err := templates("templates/placement-agent", agent, agentEnabled)
	if err != nil {
		return nil, err
	}
	maps.Copy(files, agentFiles)
	if files["templates/_generated.tpl"], err = r.helpers(slices.Concat(networks, agent)); err != nil {
		return nil, err
	}
	files["values.schema.json"], err = valuesSchema(deployments)
	return files, err
}

// templates returns a file for each kind of object. If condition is not empty, they are rendered only if it is true.
func templates(folder string, objects []object, condition string) (map[string][]byte, error) {
	texts := map[string]string{}
	for _, o := range objects {
		text, err := objectTemplate(o)
		if err != nil {
			return nil, err
		}
		if aggregates(o) {
			text = when(tenantRoles, text)
		}
		texts[o.kind()] += text
	}
	files := map[string][]byte{}
	for kind, text := range texts {
		if condition != "" {
			text = when(condition, text)
		}
		files[folder+"/"+strings.ToLower(kind)+".yaml"] = []byte(header + text)
	}
	return files, nil
}

func objectTemplate(o object) (string, error) {
	for _, p := range parts() {
		if o.kind() == p.kind && o.name() == p.program {
			return fmt.Sprintf("---\n{{ include \"patchbay.workload\" (dict \"root\" $ \"part\" %q) }}\n", p.name), nil
		}
	}
	text, err := template(o)
	return "---\n" + text, err
}

// aggregates tells whether a role adds its rights to one of Kubernetes' own.
func aggregates(o object) bool {
	for label := range o.labels() {
		if strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-") {
			return true
		}
	}
	return false
}

// helpers returns the named templates that the ones written by hand include.
func (r Release) helpers(objects []object) ([]byte, error) {
	define := func(name, text string) string {
		return fmt.Sprintf("{{- define %q -}}\n%s{{- end -}}\n", name, text)
	}
	var text strings.Builder
	text.WriteString(define("patchbay.registry", r.Registry+"\n"))
	for _, p := range parts() {
		i := slices.IndexFunc(objects, func(o object) bool { return o.kind() == p.kind && o.name() == p.program })
		if i < 0 {
			return nil, fmt.Errorf("find %s %s: must be in the kustomization", p.kind, p.program)
		}
		workload, err := template(objects[i])
		if err != nil {
			return nil, err
		}
		text.WriteString(define("patchbay.default."+p.name, workload))
	}
	keys, err := mergeKeys()
	if err != nil {
		return nil, err
	}
	text.WriteString(define("patchbay.mergeKeys", keys))
	return []byte("{{- /* Generated from deployments/ by `make generate`. Do not edit. */ -}}\n" + text.String()), nil
}

// mergeKeys returns a map from each list of a PodTemplateSpec that merges by a key to that key, as YAML. They are in
// the struct tags of Kubernetes' types, from which its own code for strategic merge patches reads them.
func mergeKeys() (string, error) {
	keys := map[string]string{}
	if err := addMergeKeys(keys, reflect.TypeFor[corev1.PodTemplateSpec](), ""); err != nil {
		return "", err
	}
	text, err := yaml.Marshal(keys)
	return string(text), err
}

func addMergeKeys(keys map[string]string, t reflect.Type, path string) error {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		below := strings.TrimPrefix(path+"."+name, ".")
		if name == "" {
			below = path
		}
		key, merges := f.Tag.Get("patchMergeKey"), false
		for strategy := range strings.SplitSeq(f.Tag.Get("patchStrategy"), ",") {
			switch strategy {
			case "", "retainKeys": // a directive in the patch says what is retained
			case "merge":
				merges = true
			default:
				return fmt.Errorf("%s.%s: the chart must know the patch strategy: got %q", t, f.Name, strategy)
			}
		}
		fieldType := f.Type
		for fieldType.Kind() == reflect.Pointer || fieldType.Kind() == reflect.Slice {
			fieldType = fieldType.Elem()
		}
		// Lists of names, such as finalizers, have no key. No default of the chart has one.
		if merges && key != "" {
			keys[below] = key
		}
		if fieldType.Kind() == reflect.Struct && strings.HasPrefix(fieldType.PkgPath(), "k8s.io/api/") || fieldType.Name() == "ObjectMeta" {
			if err := addMergeKeys(keys, fieldType, below); err != nil {
				return err
			}
		}
	}
	return nil
}
