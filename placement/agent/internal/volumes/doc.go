// SPDX-License-Identifier: Apache-2.0

// Package volumes carries out the hub's orders about the volumes of placed PersistentVolumeClaims: it fences a
// volume that leaves the cluster, and makes a PersistentVolume for one that comes.
//
// An order is a level: Operator.Apply compares it with the cluster, makes at most one write, and reports. The same
// order again changes nothing. The agent writes only PersistentVolumes that are bound to the claim of the order, or
// that it made for it, and only of CSI drivers that the cluster's admin has labelled.
package volumes
