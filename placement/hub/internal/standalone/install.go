// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	manifests "github.com/patchbay-cni/patchbay/deployments/placement"
)

// Install applies the manifests of a hub, and waits until the API server serves their kinds.
func Install(ctx context.Context, cfg *rest.Config) error {
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	objects, err := decodeManifests(manifests.Hub())
	if err != nil {
		return err
	}
	for _, kind := range installedKinds() {
		for _, o := range objects {
			if o.GetKind() != kind {
				continue
			}
			o := client.ApplyConfigurationFromUnstructured(o)
			if err := c.Apply(ctx, o, client.FieldOwner(v1alpha1.HubFieldManager), client.ForceOwnership); err != nil {
				return fmt.Errorf("install: %w", err)
			}
		}
	}
	return waitForKinds(ctx, c)
}

// installedKinds are the kinds of the manifests that a standalone hub needs, in the order of installation.
// Its API server runs no Pods.
func installedKinds() []string {
	return []string{
		"CustomResourceDefinition", "Namespace", "ServiceAccount", "Role", "ClusterRole", "ClusterRoleBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	}
}

// decodeManifests returns the objects of all manifests.
func decodeManifests(files fs.FS) (objects []*unstructured.Unstructured, err error) {
	err = fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data))
		for {
			o := &unstructured.Unstructured{}
			err := d.Decode(o)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read %s: %w", path, err)
			}
			objects = append(objects, o)
		}
	})
	return slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return len(o.Object) == 0 }), err
}

// waitForKinds waits until the API server serves the placement kinds.
func waitForKinds(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, kind := range []string{"Cluster", "Placement", "ClusterPlacement", "Customization", "Assignment", "Work"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion().WithKind(kind + "List"))
		if err := poll(ctx, startTimeout, func(ctx context.Context) error { return c.List(ctx, list) }); err != nil {
			return fmt.Errorf("wait until %s is served: %w", kind, err)
		}
	}
	return nil
}
