// SPDX-License-Identifier: Apache-2.0

// Package standalone runs a hub's API server for a trial of placement: etcd, kube-apiserver and
// kube-controller-manager, the last one without the controllers of workloads. All data is in one folder.
// The programs end with the caller.
package standalone
