// SPDX-License-Identifier: Apache-2.0

// Package pending keeps DELs that the plugin took while the daemon was away.
// Each is a file of its own, written so that it is there as a whole or not at
// all, also after a power cut: the runtime was told OK and will not ask again.
// The daemon replays them and removes the files.
package pending
