// SPDX-License-Identifier: Apache-2.0

// Package limits holds what bounds the placement of many objects together: the capacity of each
// cluster, and how many objects leave a draining cluster at a time. It includes decisions that no
// cache has yet, as the assumed Pods of kube-scheduler do.
package limits
