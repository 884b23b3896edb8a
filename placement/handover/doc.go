// SPDX-License-Identifier: Apache-2.0

// Package handover computes what changes when an object of a cluster comes under a hub, or leaves it: which
// objects may, the object as a user would have written it, the manifest that the agent will apply, and who
// owns its fields afterwards. kubectl patchbay import and export act on that.
package handover
