// SPDX-License-Identifier: Apache-2.0

// Command bounds adds bounds to the CustomResourceDefinitions of a folder, so that the API server
// rejects values that the Go types cannot decode. A client lists a kind as a whole, so one object
// that it cannot decode stops every controller that lists the kind.
//
// The API server checks types, not formats: it stores 3000000000 in an int32, "1d" in a
// duration, and a time that RFC 3339 does not allow. Markers cannot set these bounds, because most
// of these fields belong to types of Kubernetes, such as metav1.Condition. A narrower bound
// that a marker has set stays.
package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	operatorv1alpha1 "github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func main() {
	for _, folder := range os.Args[1:] {
		if err := run(folder); err != nil {
			fmt.Fprintln(os.Stderr, "bounds:", err)
			os.Exit(1)
		}
	}
}

// run bounds the definitions of a folder.
func run(folder string) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), operatorv1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if data, err = bounded(scheme, data); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// bounded returns a definition with bounds.
func bounded(scheme *runtime.Scheme, data []byte) ([]byte, error) {
	var typed apiextensionsv1.CustomResourceDefinition
	var definition map[string]any // what the typed one would add, such as a status, stays out
	if err := errors.Join(yaml.Unmarshal(data, &typed), yaml.Unmarshal(data, &definition)); err != nil {
		return nil, err
	}
	for i, version := range typed.Spec.Versions {
		kind := schema.GroupVersionKind{Group: typed.Spec.Group, Version: version.Name, Kind: typed.Spec.Names.Kind}
		object, err := scheme.New(kind)
		if err != nil {
			return nil, err
		}
		root, err := schemaAt(definition, "spec", "versions", i, "schema", "openAPIV3Schema")
		if err != nil {
			return nil, err
		}
		if err := bound(root, reflect.TypeOf(object).Elem(), kind.Kind); err != nil {
			return nil, err
		}
	}
	out, err := yaml.Marshal(definition)
	if err != nil {
		return nil, err
	}
	return append([]byte("---\n"), out...), nil
}

// schemaAt returns the part of a definition at a path of fields and indexes.
func schemaAt(in any, path ...any) (node, error) {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			fields, _ := in.(map[string]any)
			in = fields[step]
		case int:
			items, _ := in.([]any)
			if step >= len(items) {
				return nil, fmt.Errorf("%v: there is no item %d", path, step)
			}
			in = items[step]
		}
	}
	found, ok := in.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%v: got %T, want an object", path, in)
	}
	return found, nil
}

// node is the schema of a field.
type node map[string]any

// add sets a keyword that no marker has set.
func (n node) add(keyword string, value any) {
	if _, ok := n[keyword]; !ok {
		n[keyword] = value
	}
}

// Patterns of the values that Go decodes.
const (
	// day and zone are as in RFC 3339, in capitals; the format date-time checks the rest.
	day    = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}`
	zone   = `(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	moment = day + `([.][0-9]{1,9})?` + zone
	// micro has the six digits that metav1.MicroTime requires.
	micro = day + `[.][0-9]{6}` + zone

	// quantity is Kubernetes' pattern of quantities with a decimal exponent of two digits.
	// Go does not decode an exponent with a fraction. With many digits Go calculates for minutes,
	// and so does CEL's isQuantity, because the API server runs rules even if the pattern does not match.
	quantity = `^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`

	// durations are those of time.ParseDuration that are not negative. The numbers of digits
	// keep 32 characters of them below the 292 years that a time.Duration holds.
	durations = `^(0|([0-9]{1,5}([.][0-9]{1,9})?h|[0-9]{1,7}([.][0-9]{1,9})?m|[0-9]{1,9}([.][0-9]{1,9})?s|[0-9]{1,12}([.][0-9]{1,9})?(ms|us|µs|ns))+)$`
	// longest keeps the rules' estimated cost within the API server's limit.
	longest = 32
)

// bound adds the bounds of a Go type to a schema.
func bound(n node, of reflect.Type, path string) error {
	if of.Kind() == reflect.Pointer {
		return bound(n, of.Elem(), path)
	}
	switch of {
	case reflect.TypeFor[metav1.ObjectMeta](), reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[apiextensionsv1.JSON]():
		return nil // the API server decodes metadata itself; the others take any JSON
	case reflect.TypeFor[metav1.Time]():
		n.add("pattern", moment)
		return nil
	case reflect.TypeFor[metav1.MicroTime]():
		n.add("pattern", micro)
		return nil
	case reflect.TypeFor[metav1.Duration]():
		n.add("maxLength", longest)
		rules, _ := n["x-kubernetes-validations"].([]any) // a marker may limit the duration
		n["x-kubernetes-validations"] = append(rules, map[string]any{
			"rule": "self.matches('" + durations + "')", "message": `must be a duration such as "90s", "10m" or "1h30m"`,
		})
		return nil
	case reflect.TypeFor[resource.Quantity]():
		n["pattern"] = quantity // the one that is there is wider
		n.add("maxLength", longest)
		return nil
	case reflect.TypeFor[intstr.IntOrString]():
		if _, ok := n["x-kubernetes-validations"]; !ok {
			return fmt.Errorf("%s: a marker must bound a number or string", path)
		}
		return nil
	}
	switch of.Kind() {
	case reflect.Bool, reflect.String, reflect.Int64: // the API server stores no integer beyond 64 bits
	case reflect.Int32:
		n.add("minimum", math.MinInt32)
		n.add("maximum", math.MaxInt32)
	case reflect.Slice:
		return boundBelow(n, "items", of.Elem(), path+"[]")
	case reflect.Map:
		return boundBelow(n, "additionalProperties", of.Elem(), path+"{}")
	case reflect.Struct:
		return boundFields(n, of, path)
	default:
		return fmt.Errorf("%s: what does the API server store that a %s cannot decode?", path, of)
	}
	return nil
}

// boundFields bounds the fields of a struct.
func boundFields(n node, of reflect.Type, path string) error {
	properties, _ := n["properties"].(map[string]any)
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		var err error
		if name == "" { // its fields are inline
			err = boundFields(n, field.Type, path)
		} else {
			err = boundBelow(properties, name, field.Type, path+"."+name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// boundBelow bounds a part of a schema.
func boundBelow(n node, keyword string, of reflect.Type, path string) error {
	part, ok := n[keyword].(map[string]any)
	if !ok {
		return fmt.Errorf("%s: the definition does not have it", path)
	}
	return bound(part, of, path)
}
