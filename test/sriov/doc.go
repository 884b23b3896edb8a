// SPDX-License-Identifier: Apache-2.0

// Package sriov tests Pods on virtual functions in the lab: node-2 has two physical functions of seven
// virtual ones each, a real kubelet, and the device plugin of the tests. The tests run with the tag
// sriovlab, one after the other, since each needs most of the functions.
package sriov
