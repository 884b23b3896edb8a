// SPDX-License-Identifier: Apache-2.0

// Package networkcache keeps the models of all networks of the cluster.
//
// It watches metadata, because each address claim writes a network's status, and a watch of
// whole objects would send each of these writes to all nodes. It reads an object in full when
// its UID or generation differs from the model (Cache).
//
// The package also has what acts on networks: it collects the networks in which this node has
// an entry (NodeEntries), writes the condition Ready (Conditions), and frees this node's
// entries of networks in deletion (Finalizers).
package networkcache
