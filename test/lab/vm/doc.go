// SPDX-License-Identifier: Apache-2.0

// Package vm has what the two kinds of guests share, User-Mode Linux (package uml) and QEMU
// (package qemu): how a guest is described, what its folder has, and how its processes are
// found and killed.
//
// The guest's root is the machine's own file system, read-only; what the guest writes goes
// where its guest.Spec mounts something. The processes that run a guest's kernel have the
// guest's folder on their command line (Mark), which is how they are found again, even when
// no program remembers having started them.
package vm
