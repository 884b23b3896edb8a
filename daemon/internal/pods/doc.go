// SPDX-License-Identifier: Apache-2.0

// Package pods reads Pods and records Events about them, and ends the sandboxes of Pods whose
// DEL never came (SandboxGC).
package pods
