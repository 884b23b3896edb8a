// SPDX-License-Identifier: Apache-2.0

// Package process runs the programs of a lab so that they outlive the command
// that started them, and so that another command can end exactly these.
//
// A pid alone does not name a process, since the kernel gives it out again.
// The pid with the start time from /proc does (proc(5), field 22 of stat), and a
// pidfd opened before that time is checked makes a signal free of races.
package process
