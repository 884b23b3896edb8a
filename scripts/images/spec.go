// SPDX-License-Identifier: Apache-2.0

package main

// registry is a name that no resolver answers, so that a node without the image
// fails at once instead of asking another registry for it.
const registry = "patchbay.local"

// develTag is the tag that the manifests in deployments/ name until a version is
// set; each archive carries it besides its version.
const develTag = "devel"

// spec is one image: programs from bin/ at the root of an empty file system.
type spec struct {
	// name of the image and of its archive.
	name string
	// programs are copied to /<program>, with their folder if they have one; the first is the
	// entry point.
	programs []string
	// description for people who list images.
	description string
}

// specs are the images of this repository.
func specs() []spec {
	return []spec{{
		name: "patchbayd",
		// The daemon copies the plugin to the node's CNI folder at start.
		programs:    []string{"patchbayd", "patchbay"},
		description: "Patchbay's node daemon and its CNI plugin",
	}, {
		name:        "patchbay-controller",
		programs:    []string{"patchbay-controller"},
		description: "Patchbay's controller",
	}, {
		name:        "patchbay-agent",
		programs:    []string{"patchbay-agent"},
		description: "Patchbay's agent in a workload cluster",
	}, {
		name: "patchbay-hub",
		// The programs of Kubernetes are for `patchbay-hub up --bin-dir /kubernetes`.
		programs:    []string{"patchbay-hub", "kubernetes/kube-apiserver", "kubernetes/kube-controller-manager", "kubernetes/etcd"},
		description: "Patchbay's hub, beside an API server that runs no workload controllers",
	}}
}

// reference is the full name of an image.
func reference(name, tag string) string {
	return registry + "/" + name + ":" + tag
}
