// SPDX-License-Identifier: Apache-2.0

// Package networkviews keeps a NetworkView in each namespace: the networks that its Pods may join,
// for tenants, who may not read ClusterNetworks.
//
// The free addresses of a network that all tenants share change with each Pod, and each change
// concerns all namespaces. Therefore all views are compared at an interval, small changes of numbers
// are left out, and the rate of writes is bounded. Views with other networks are written first.
package networkviews
