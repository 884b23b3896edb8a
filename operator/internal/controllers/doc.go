// SPDX-License-Identifier: Apache-2.0

// Package controllers runs the operator's control loop: it reads the Installation, applies what it describes, and
// writes what it has found into the status.
package controllers
