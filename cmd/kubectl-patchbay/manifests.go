// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/patchbay-cni/patchbay/deployments/placement"
)

// objects are what is applied, in this order: the Deployment comes last.
func (j *joining) objects() ([]*unstructured.Unstructured, error) {
	secret, err := j.secret()
	if err != nil {
		return nil, err
	}
	objects, err := agentObjects()
	if err != nil {
		return nil, err
	}
	last := objects[len(objects)-1]
	if err := j.configure(last); err != nil {
		return nil, err
	}
	return append(objects[:len(objects)-1], secret, last), nil
}

// agentObjects are the agent's manifests.
func agentObjects() ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, name := range []string{
		"crds/placement.patchbay.io_appliedworks.yaml", "agent/namespace.yaml", "agent/serviceaccount.yaml", "agent/admission.yaml",
		"agent/rbac.yaml", "agent/deployment.yaml",
	} {
		found, err := readManifests(placement.Agent(), name)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// readManifests reads the objects of a file.
func readManifests(files fs.FS, name string) ([]*unstructured.Unstructured, error) {
	raw, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	var objects []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), len(raw)); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(o); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("read manifest %s: %w", name, err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// decoded is the authority as PEM.
func (j *joining) decoded() ([]byte, error) {
	ca, err := base64.StdEncoding.DecodeString(j.ca)
	if err != nil {
		return nil, fmt.Errorf("flag --ca: want base64: %w", err)
	}
	return ca, nil
}
