// SPDX-License-Identifier: Apache-2.0

package product

// Tags are the build tags of the product's own programs. The Makefile explains them.
const Tags = "grpcnotrace"

// Program is a program and where it is built.
type Program struct {
	// Name of the program's file below bin/, and in an image.
	Name string
	// Module is the folder of the Go module that builds it, from the repository's root.
	Module string
	// Package is the main package.
	Package string
}

// Folders of modules.
const (
	Root       = "."
	Kubernetes = "test/kubernetes"
	Etcd       = "test/etcd"
)

// Plugin is the kubectl plugin.
func Plugin() Program { return own("kubectl-patchbay") }

// own is a program of the product's own module.
func own(name string) Program {
	return Program{Name: name, Module: Root, Package: "./cmd/" + name}
}

// kubernetes is a program of Kubernetes.
func kubernetes(name string) Program {
	return Program{Name: "kubernetes/" + name, Module: Kubernetes, Package: "k8s.io/kubernetes/cmd/" + name}
}
