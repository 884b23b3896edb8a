// SPDX-License-Identifier: Apache-2.0

// Package firstinstall tests, in a lab of its own, that the installation of Patchbay next to another CNI
// plugin stops no Pod of the cluster, and that a missing CustomResourceDefinition is reported.
package firstinstall
