// SPDX-License-Identifier: Apache-2.0

// Package guest is the user space of a lab machine: what runs as process 1 in a
// kernel (User-Mode Linux, or one in QEMU) whose root file system is the machine's own.
//
// A program that boots such kernels is also their init: the kernel starts it anew
// as "PROGRAM guest SPEC", and its main hands over to Main. SPEC is a JSON file
// that says what to mount, load and run, so that everything specific to one kind of
// machine stands with the code that boots it.
package guest
