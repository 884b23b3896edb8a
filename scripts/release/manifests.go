// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/scripts/internal/product"
)

// manifest is a file of the release, and the kustomization that it is rendered from.
type manifest struct{ file, kustomization string }

// manifests are what users apply without kustomize.
func manifests() []manifest {
	return []manifest{
		{"patchbay.yaml", "deployments"},
		{"patchbay-operator.yaml", "deployments/operator"},
		{"patchbay-agent.yaml", "deployments/placement"},
		{"patchbay-agent-debug.yaml", "deployments/placement/agent-debug"},
		{"patchbay-agent-volumes.yaml", "deployments/placement/agent-volumes"},
		{"patchbay-hub.yaml", "deployments/placement/host"},
		{"patchbay-hub-objects.yaml", "deployments/placement/hub"},
		{"patchbay-hub-alerts.yaml", "deployments/placement/alerts"},
	}
}

// writeManifests writes the manifests with the images of the release.
func writeManifests(r release, dir string) error {
	for _, m := range manifests() {
		content, err := render(r, m.kustomization)
		if err != nil {
			return fmt.Errorf("render %s: %w", m.kustomization, err)
		}
		if err := writeFile(filepath.Join(dir, "manifests", m.file), content); err != nil {
			return err
		}
	}
	return nil
}

// render returns the objects of a kustomization in the order in which `kubectl apply -k` applies them.
func render(r release, kustomization string) (content []byte, err error) {
	overlay, err := os.MkdirTemp("", "patchbay-overlay-")
	if err != nil {
		return nil, fmt.Errorf("make scratch folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(overlay)) }()
	base, err := relative(overlay, filepath.Join(r.Source, kustomization))
	if err != nil {
		return nil, err
	}
	k := types.Kustomization{Resources: []string{base}}
	for _, image := range product.Images() {
		k.Images = append(k.Images, types.Image{
			Name: version.LocalRegistry + "/" + image.Name, NewName: r.Registry + "/" + image.Name, NewTag: r.Version,
		})
	}
	file, err := yaml.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("encode overlay: %w", err)
	}
	if err := writeFile(filepath.Join(overlay, "kustomization.yaml"), file); err != nil {
		return nil, err
	}
	o := krusty.MakeDefaultOptions()
	o.Reorder = krusty.ReorderOptionLegacy
	objects, err := krusty.MakeKustomizer(o).Run(filesys.MakeFsOnDisk(), overlay)
	if err != nil {
		return nil, err
	}
	return objects.AsYaml()
}

// relative returns the way from one folder to another, because kustomize takes no absolute paths. It follows links,
// as kustomize does.
func relative(from, to string) (string, error) {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return "", err
	}
	if to, err = filepath.Abs(to); err != nil {
		return "", err
	}
	if to, err = filepath.EvalSymlinks(to); err != nil {
		return "", err
	}
	return filepath.Rel(from, to)
}
