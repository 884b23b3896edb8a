// SPDX-License-Identifier: Apache-2.0

// Package install installs the plugin and its configuration on the host, and removes them when
// Patchbay is uninstalled.
//
// A container runtime that finds the configuration sends each new sandbox to the plugin. The daemon
// therefore installs the plugin first, and the configuration when it is ready. It uninstalls the
// configuration first. Each file is replaced atomically.
//
// A stopping daemon does not know why it stops, and checks whether its DaemonSet is gone. During a
// rollout or a reboot both files must stay: without them, Pods would start on the network plugin
// that sorts next. The daemon holds the journal's lock meanwhile, so that a stopping and a starting
// daemon do not undo each other's changes.
package install
