// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"slices"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// object is an object of a manifest.
type object map[string]any

func (o object) kind() string {
	kind, _ := o["kind"].(string)
	return kind
}

func (o object) metadata() map[string]any {
	metadata, _ := o["metadata"].(map[string]any)
	return metadata
}

func (o object) name() string {
	name, _ := o.metadata()["name"].(string)
	return name
}

func (o object) labels() map[string]any {
	labels, _ := o.metadata()["labels"].(map[string]any)
	return labels
}

// render returns the objects of a kustomization in the order in which it lists them.
func render(kustomization string) ([]object, error) {
	found, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), kustomization)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", kustomization, err)
	}
	var objects []object
	for _, r := range found.Resources() {
		o, err := r.Map()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", r.CurId(), err)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// without returns the objects that are not left out.
func without(objects []object, leftOut func(object) bool) []object {
	return slices.DeleteFunc(slices.Clone(objects), leftOut)
}
