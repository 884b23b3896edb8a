// SPDX-License-Identifier: Apache-2.0

// Package hub is the program patchbay-hub. It places objects of a hub's API server on workload clusters. It
// runs beside an API server that runs no workload controllers; `patchbay-hub up` starts
// such a one, for trying it out.
package hub
