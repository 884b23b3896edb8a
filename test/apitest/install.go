// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/source"
)

// pollInterval is how often waiting looks.
const pollInterval = 20 * time.Millisecond

// kinds lists what is installed of deployments/, in this order. Workloads have no node
// to run on here, and webhooks nobody who answers.
func kinds() []string {
	return []string{
		"Namespace", "CustomResourceDefinition",
		"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	}
}

// install creates definitions, rights and policies, and waits until the API server acts
// on them.
func install(ctx context.Context, c client.Client) error {
	objects, err := readClusterManifests()
	if err != nil {
		return err
	}
	for _, kind := range kinds() {
		for _, o := range objects {
			if o.GetKind() != kind {
				continue
			}
			if err := c.Create(ctx, o); err != nil {
				return fmt.Errorf("install %s %s: %w", kind, o.GetName(), err)
			}
		}
	}
	if err := awaitDefinitions(ctx, c); err != nil {
		return err
	}
	return awaitPolicies(ctx, c)
}

// readClusterManifests reads what a cluster with networks has of deployments/: placement, the hub's
// and the agent's part, and the operator are for whoever tests them.
func readClusterManifests() ([]*unstructured.Unstructured, error) {
	folder, err := source.Path("deployments")
	if err != nil {
		return nil, err
	}
	parts, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("list manifests: %w", err)
	}
	var all []*unstructured.Unstructured
	for _, part := range parts {
		if part.Name() == "placement" || part.Name() == "operator" {
			continue
		}
		objects, err := ReadManifests(filepath.Join(folder, part.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// ReadManifests reads all objects of the *.yaml files in a folder and those below, in
// the order of the files' paths.
func ReadManifests(folder string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path == filepath.Join(folder, "placement") {
			return filepath.SkipDir // for hubs and their clusters, which are other API servers
		}
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		more, err := readManifest(path)
		objects = append(objects, more...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read manifests in %s: %w", folder, err)
	}
	return objects, nil
}

func readManifest(file string) ([]*unstructured.Unstructured, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer f.Close()
	const lookAhead = 4096 // how far the decoder looks to tell JSON from YAML
	decoder := yaml.NewYAMLOrJSONDecoder(f, lookAhead)
	var objects []*unstructured.Unstructured
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", file, err)
		}
		if len(o.Object) > 0 { // a comment between two separators
			objects = append(objects, o)
		}
	}
}
