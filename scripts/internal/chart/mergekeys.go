// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

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
		if f.Anonymous {
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
