// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real Kubernetes control plane as ordinary processes:
// etcd, kube-apiserver and, when asked, kube-controller-manager and kube-scheduler.
//
// Everything of one control plane lives in one folder: certificates, kubeconfigs,
// logs, etcd's data, and the names of its processes. So a second command can open
// the folder and stop, restart or break what a first one started. etcd listens on a
// unix socket in that folder, which makes it reachable from every network namespace
// and needs no port; several API servers can share it, each under its own prefix.
package controlplane
