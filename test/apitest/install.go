// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/source"
)

// pollInterval is how often waiting looks.
const pollInterval = 20 * time.Millisecond

// install creates what is in the folders of definitions and policies, and waits until
// the API server acts on it.
func install(ctx context.Context, c client.Client) error {
	for _, folder := range []string{"crds", "policies"} {
		path, err := source.Path("deployments", folder)
		if err != nil {
			return err
		}
		objects, err := ReadManifests(path)
		if err != nil {
			return err
		}
		for _, o := range objects {
			if err := c.Create(ctx, o); err != nil {
				return fmt.Errorf("install %s %s: %w", o.GetKind(), o.GetName(), err)
			}
		}
	}
	if err := awaitDefinitions(ctx, c); err != nil {
		return err
	}
	return awaitPolicies(ctx, c)
}

// ReadManifests reads all objects of the *.yaml files in a folder, in the order of the
// files' names. A kustomization is no object and is left out; a folder that does not
// exist has none.
func ReadManifests(folder string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		more, err := readManifest(file)
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

func readManifest(file string) ([]*unstructured.Unstructured, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
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
			return nil, fmt.Errorf("read manifest %s: %w", file, err)
		}
		if len(o.Object) > 0 { // a comment between two separators
			objects = append(objects, o)
		}
	}
}

// awaitDefinitions waits until all resource definitions are served.
func awaitDefinitions(ctx context.Context, c client.Client) error {
	var last string
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		var list apiextensionsv1.CustomResourceDefinitionList
		if err := c.List(ctx, &list); err != nil {
			return false, fmt.Errorf("list definitions: %w", err)
		}
		for _, d := range list.Items {
			if !established(d) {
				last = d.Name
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("await definition %s: %w", last, err)
	}
	return nil
}

func established(d apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range d.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}
