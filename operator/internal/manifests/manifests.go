// SPDX-License-Identifier: Apache-2.0

// Package manifests reads the objects of deployments/, which are part of the operator's program. It adds
// what the kustomizations there add. A test compares the result with that of kustomize.
package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/patchbay-cni/patchbay/deployments"
	"github.com/patchbay-cni/patchbay/deployments/placement"
)

// kustomization is what the files kustomization.yaml in deployments/ have. The images are another matter:
// an Installation names them.
type kustomization struct {
	Resources []string `json:"resources"`
	Labels    []struct {
		Pairs map[string]string `json:"pairs"`
	} `json:"labels"`
}

// Cluster returns the definitions of the networks' kinds, and the programs with their rights, policies and
// webhooks.
func Cluster() ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, folder := range []string{"crds", "workloads"} {
		objects, err := readKustomization(deployments.Cluster(), folder)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// Agent returns the agent of a hub, with its rights, policies and the definition of its records.
func Agent() ([]*unstructured.Unstructured, error) {
	objects, err := readFiles(placement.Agent(), "crds", "agent")
	if err != nil {
		return nil, err
	}
	addLabels(objects, map[string]string{"app.kubernetes.io/part-of": "patchbay"})
	return objects, nil
}

// readKustomization returns the objects of a folder with a kustomization.
func readKustomization(files fs.FS, folder string) ([]*unstructured.Unstructured, error) {
	data, err := fs.ReadFile(files, path.Join(folder, "kustomization.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read kustomization: %w", err)
	}
	var k kustomization
	if err := yaml.Unmarshal(data, &k); err != nil {
		return nil, fmt.Errorf("decode kustomization of %s: %w", folder, err)
	}
	var all []*unstructured.Unstructured
	for _, resource := range k.Resources {
		name := path.Join(folder, resource)
		info, err := fs.Stat(files, name)
		if err != nil {
			return nil, fmt.Errorf("find resource of %s: %w", folder, err)
		}
		read := readFile
		if info.IsDir() {
			read = readKustomization
		}
		objects, err := read(files, name)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	for _, labels := range k.Labels {
		addLabels(all, labels.Pairs)
	}
	return all, nil
}

// readFiles returns the objects of all files in some folders.
func readFiles(files fs.FS, folders ...string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, folder := range folders {
		names, err := fs.Glob(files, path.Join(folder, "*.yaml"))
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", folder, err)
		}
		for _, name := range names {
			objects, err := readFile(files, name)
			if err != nil {
				return nil, err
			}
			all = append(all, objects...)
		}
	}
	return all, nil
}

// readFile returns the objects of a file.
func readFile(files fs.FS, name string) ([]*unstructured.Unstructured, error) {
	data, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data)); ; {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", name, err)
		}
		if len(o.Object) > 0 { // a comment between two separators
			objects = append(objects, o)
		}
	}
}

func addLabels(objects []*unstructured.Unstructured, pairs map[string]string) {
	for _, o := range objects {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, pairs)
		o.SetLabels(labels)
	}
}
