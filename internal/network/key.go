// SPDX-License-Identifier: Apache-2.0

package network

// Key names one incarnation of a network object. It is comparable.
type Key struct {
	// Ref names the object.
	Ref Ref
	// UID tells it from another object of the same name.
	UID string
}

// KeyOf returns the key of a network.
func KeyOf(n *Network) Key { return Key{Ref: n.Ref, UID: n.UID} }
