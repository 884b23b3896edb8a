// SPDX-License-Identifier: Apache-2.0

// Package hub is the program patchbay-hub, which places the objects of a hub's API server in workload
// clusters. The API server must run no workload controllers. `patchbay-hub up` starts such an API server for
// a trial.
package hub
