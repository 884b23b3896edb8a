// SPDX-License-Identifier: Apache-2.0

// Package scene plays what stands around the watcher of Services: the real controller
// as a process with the rights of its service account, and Pods and DanmEps whose
// status the test writes, as no kubelet and no node daemon runs beside the API server.
package scene
