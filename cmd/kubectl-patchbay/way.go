// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// wayAnnotation on the agent's Pods changes with name, hub and join token, so that they
// start anew: an agent reads these once.
const wayAnnotation = "placement.patchbay.io/way"

// secret is the way to the hub, as a kubeconfig.
func (j *joining) secret() (*unstructured.Unstructured, error) {
	ca, err := j.decoded()
	if err != nil {
		return nil, err
	}
	raw, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{j.cluster: {Server: j.addresses()[0], CertificateAuthorityData: ca, ProxyURL: j.proxy}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"join": {Token: j.token}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: j.cluster, AuthInfo: "join"}},
		CurrentContext: "hub",
	})
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"namespace": agentNamespace, "name": hubSecret},
		"data":     map[string]any{"kubeconfig": base64.StdEncoding.EncodeToString(raw)},
	}}, nil
}

// configure gives the agent's Deployment image and name.
func (j *joining) configure(o *unstructured.Unstructured) error {
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 || o.GetKind() != "Deployment" {
		return fmt.Errorf("the last of the agent's manifests is a %s with %d containers, want a Deployment with one", o.GetKind(), len(containers))
	}
	agent, _ := containers[0].(map[string]any)
	env, _ := agent["env"].([]any)
	for _, e := range env {
		if e, ok := e.(map[string]any); ok && e["name"] == "CLUSTER" {
			e["value"] = j.cluster
		}
	}
	agent["image"] = j.image
	args, _ := agent["args"].([]any)
	for _, further := range j.addresses()[1:] {
		args = append(args, "--hub-address="+further)
	}
	if j.tokenAuth {
		args = append(args, "--token-auth")
	}
	agent["args"] = args
	if err := unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		return fmt.Errorf("set the agent's container: %w", err)
	}
	sum := sha256.Sum256([]byte(j.cluster + "\n" + j.hub + "\n" + j.ca + "\n" + j.proxy + "\n" + j.token))
	err = unstructured.SetNestedField(o.Object, hex.EncodeToString(sum[:8]), "spec", "template", "metadata", "annotations", wayAnnotation)
	if err != nil {
		return fmt.Errorf("annotate the agent's Pods: %w", err)
	}
	return nil
}
