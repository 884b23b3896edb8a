// SPDX-License-Identifier: Apache-2.0

// Package image makes the lab's own container images from the machine's static
// busybox: there is no registry to pull others from.
package image
