// SPDX-License-Identifier: Apache-2.0

// Package install puts the plugin and its configuration on the host, and takes
// them away when Patchbay is uninstalled.
//
// The order is what keeps Pods safe: a runtime that finds the configuration
// sends every new sandbox to the plugin, so the plugin comes first and the
// configuration last, once the daemon answers; on the way out the configuration
// goes first. Each file is there as a whole or not at all.
//
// A daemon that stops does not know why. It asks whether its DaemonSet is gone:
// a rollout or a reboot must leave both files, or Pods would start on whatever
// network plugin sorts next. All of it happens under the journal's lock, so that
// the daemon that leaves and the one that comes do not undo each other's work.
package install
