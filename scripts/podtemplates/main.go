// SPDX-License-Identifier: Apache-2.0

// Command podtemplates gives the fields named template in a CustomResourceDefinition, which controller-gen
// writes without a schema, the schema of Kubernetes' PodTemplateSpec, by the CRD compiler. The schema is for a
// strategic merge patch: it requires only the keys of lists, and accepts directives. It is that of the newest
// embedded version of Kubernetes. An older API server does not know some of its fields: the operator rejects
// a template whose field has no effect there.
//
//	podtemplates deployments/operator/crds/operator.patchbay.io_installations.yaml
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/internal/crdcompiler"
)

// podTemplate is the definition that the fields refer to.
const podTemplate = "io.k8s.api.core.v1.PodTemplateSpec"

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "podtemplates:", err)
		os.Exit(1)
	}
}

// run rewrites the file that the only argument names.
func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: podtemplates FILE")
	}
	templates, err := crdcompiler.ReadTemplates(args[0])
	if err != nil {
		return err
	}
	if len(templates) != 1 {
		return fmt.Errorf("%s: must have one CustomResourceDefinition: got %d", args[0], len(templates))
	}
	crd, err := compile(ctx, templates[0])
	if err != nil {
		return err
	}
	data, err := yaml.Marshal(crd.Object)
	if err != nil {
		return fmt.Errorf("encode %s: %w", crd.Name, err)
	}
	return os.WriteFile(args[0], append([]byte("---\n"), data...), 0o644)
}

// compile returns the definition with the schemas of the templates.
func compile(ctx context.Context, t *crdcompiler.Template) (*crdcompiler.CRD, error) {
	if fields := eachTemplate(t.Object, refer); fields == 0 {
		return nil, fmt.Errorf("%s: must have a field template without a schema", t.File)
	}
	openAPI, err := crdcompiler.ReadOpenAPI()
	if err != nil {
		return nil, err
	}
	definitions, err := openAPI.Of(openAPI.Minors[len(openAPI.Minors)-1])
	if err != nil {
		return nil, err
	}
	crd, err := crdcompiler.Compile(ctx, t, definitions, crdcompiler.Options{})
	if err != nil {
		return nil, err
	}
	eachTemplate(crd.Object, relax)
	if err := crdcompiler.Check(ctx, crd); err != nil {
		return nil, err
	}
	return crd, nil
}

// eachTemplate changes the schemas of all properties with the name template, and returns how many there are.
func eachTemplate(value any, change func(map[string]any)) int {
	count := 0
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			count += eachTemplate(element, change)
		}
	case map[string]any:
		properties, _ := v["properties"].(map[string]any)
		if template, ok := properties["template"].(map[string]any); ok {
			change(template)
			return 1 + eachTemplate(without(properties, "template"), change)
		}
		for _, element := range v {
			count += eachTemplate(element, change)
		}
	}
	return count
}

// without returns the properties except one.
func without(properties map[string]any, name string) map[string]any {
	rest := map[string]any{}
	for key, value := range properties {
		if key != name {
			rest[key] = value
		}
	}
	return rest
}

// refer makes the schema of a field a reference.
func refer(field map[string]any) {
	delete(field, "x-kubernetes-preserve-unknown-fields")
	field["$ref"] = podTemplate
}

// The directives of a strategic merge patch that a template may have. Deletions from lists of simple values
// have no place in a schema.
const (
	patchDirective = "$patch"
	retainKeys     = "$retainKeys"
)

// relax changes the schema of a PodTemplateSpec to that of a strategic merge patch for one.
func relax(template map[string]any) {
	properties, _ := template["properties"].(map[string]any)
	spec, _ := properties["spec"].(map[string]any)
	fields, _ := spec["properties"].(map[string]any)
	// Kubernetes accepts no ephemeral containers in a template.
	delete(fields, "ephemeralContainers")
	relaxSchema(template, nil)
	// An item of a list is what it names, so that a volume may get another source.
	volumes, _ := fields["volumes"].(map[string]any)
	items, _ := volumes["items"].(map[string]any)
	volume, _ := items["properties"].(map[string]any)
	volume[retainKeys] = map[string]any{"type": "array", "items": map[string]any{"type": "string"}, "x-kubernetes-list-type": "set"}
}

// relaxSchema makes a schema require only the keys of the list that it is the item of, and accept a directive
// in every object with fields.
func relaxSchema(s map[string]any, keys []any) {
	var kept []any
	required, _ := s["required"].([]any)
	for _, name := range required {
		if slices.Contains(keys, name) {
			kept = append(kept, name)
		}
	}
	delete(s, "required")
	if len(kept) > 0 {
		s["required"] = kept
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		for _, property := range properties {
			if below, ok := property.(map[string]any); ok {
				relaxSchema(below, nil)
			}
		}
		properties[patchDirective] = map[string]any{"type": "string"}
	}
	if below, ok := s["additionalProperties"].(map[string]any); ok {
		relaxSchema(below, nil)
	}
	if items, ok := s["items"].(map[string]any); ok {
		listKeys, _ := s["x-kubernetes-list-map-keys"].([]any)
		relaxSchema(items, listKeys)
	}
}
