// SPDX-License-Identifier: Apache-2.0

// Package crdcompiler makes self-contained CustomResourceDefinitions from templates whose schemas
// refer to Kubernetes' own types, to files, and to each other. `kubectl patchbay crd compile` is its
// command, and docs/crd-compiler.md describes the templates.
//
// A template passes these stages: ReadTemplates reads it, Compile resolves its references, adapts
// Kubernetes' definitions to what a CustomResourceDefinition may have, and applies the JSON patches
// beside the template; Check validates the result, and its methods encode it.
package crdcompiler
