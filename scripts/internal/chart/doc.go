// SPDX-License-Identifier: Apache-2.0

// Package chart makes the Helm charts from the kustomizations in deployments: Files returns them. The objects of
// the kustomizations become templates, in which the namespace is that of the release. The templates of Pods get
// what the values change by the templates in files, which are written by hand. Merge keys and the schema of the
// values come from Kubernetes' types and from the definition of Installation, so that chart and operator accept
// the same.
package chart
