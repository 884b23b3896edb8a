// SPDX-License-Identifier: Apache-2.0

// Package standalone starts a hub's API server for trying placement out: etcd,
// kube-apiserver and kube-controller-manager, the last one with those controllers
// only that run no workloads. All is in one folder, and ends with the caller.
package standalone
