// SPDX-License-Identifier: Apache-2.0

package product

// Image is one image: programs at the root of an empty file system.
type Image struct {
	// Name of the image and of its archive.
	Name string
	// Programs are copied to /<name>, with their folder if they have one; the first is the entry point.
	Programs []Program
	// Description for people who list images.
	Description string
}

// Images are the images of this repository.
func Images() []Image {
	return []Image{{
		Name: "patchbayd",
		// The daemon copies the plugin to the node's CNI folder at start.
		Programs:    []Program{own("patchbayd"), own("patchbay")},
		Description: "Patchbay's node daemon and its CNI plugin",
	}, {
		Name:        "patchbay-controller",
		Programs:    []Program{own("patchbay-controller")},
		Description: "Patchbay's controller",
	}, {
		Name:        "patchbay-agent",
		Programs:    []Program{own("patchbay-agent")},
		Description: "Patchbay's agent in a workload cluster",
	}, {
		Name:        "patchbay-operator",
		Programs:    []Program{own("patchbay-operator")},
		Description: "Patchbay's operator, which installs the other images",
	}, {
		Name: "patchbay-hub",
		// The programs of Kubernetes are for `patchbay-hub up --bin-dir /kubernetes`.
		Programs: []Program{
			own("patchbay-hub"), kubernetes("kube-apiserver"), kubernetes("kube-controller-manager"),
			{Name: "kubernetes/etcd", Module: Etcd, Package: "go.etcd.io/etcd/server/v3"},
		},
		Description: "Patchbay's hub, beside an API server that runs no workload controllers",
	}}
}
