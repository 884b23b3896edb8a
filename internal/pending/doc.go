// SPDX-License-Identifier: Apache-2.0

// Package pending stores DELs that the plugin accepted while the daemon was unavailable. Each is a
// file that is written atomically, also if the power fails: the runtime does not repeat a DEL
// that succeeded. The daemon replays the DELs and removes the files.
package pending
