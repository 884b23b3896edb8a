// SPDX-License-Identifier: Apache-2.0

// Package operator is the program patchbay-operator. It installs Patchbay as the Installation says, keeps
// it so, and reports the progress. It runs as a Deployment of one replica with leader election, see
// deployments/operator.
package operator
