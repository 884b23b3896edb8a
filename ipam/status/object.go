// SPDX-License-Identifier: Apache-2.0

// Package status reads and plans status.ipam of a network: the nodes' entries, the bitmaps,
// and the DanmEps that cover addresses beside them. It does no input or output. Packages
// allocator and gc share it.
package status

import (
	"errors"
	"net/netip"
	"strings"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Errors of a store, and those that allocator and gc have in common.
var (
	// ErrConflict means that the object has changed since it was read: the write was not
	// applied and never will be.
	ErrConflict = errors.New("object has changed")
	// ErrNotFound means that there is no object of that name.
	ErrNotFound = errors.New("not found")
	// ErrTryAgain means that waiting helps (CNI error 11).
	ErrTryAgain = errors.New("try again later")
	// ErrUnknownState means that status.ipam is absent or cannot be read, and could not be
	// rebuilt.
	ErrUnknownState = errors.New("state of the network's addresses is unknown")
)

// Object is a network object as the API server has it. A store shares no memory
// of an Object that it returned.
type Object struct {
	// Ref names the object.
	Ref network.Ref
	// UID tells it from a former object of the same name.
	UID string
	// Generation of the spec.
	Generation int64
	// ResourceVersion is that of the read or write that gave this object.
	ResourceVersion string
	// Deleting says that it has a deletion timestamp.
	Deleting bool
	// Protected says that it has the finalizer danm.io/in-use.
	Protected bool
	// Network is the validated spec, nil when Invalid.
	Network *network.Network
	// Invalid is what is wrong with the spec, naming field and rule.
	Invalid error

	// IPAM is status.ipam; nil means unknown, not empty.
	IPAM *v1.IPAMStatus
	// Allocated and Capacity are status.allocated and status.capacity.
	Allocated, Capacity int64

	// Extra is what the store wrote there for itself: the rest of the object that its
	// writes must leave as it is. Copies of an Object keep it.
	Extra any
}

// Subnets returns the subnets that addresses are given from: none of an invalid spec, and
// none of a network whose addresses another plugin assigns.
func (o *Object) Subnets() (v4, v6 *network.Subnet) {
	if o.Invalid != nil || o.Network.Delegates() {
		return nil, nil
	}
	return o.Network.V4, o.Network.V6
}

// Delegated reports whether another plugin assigns the addresses in the network's DanmEps.
// If there is a bitmap, the network was of another type, and some may be ours.
func (o *Object) Delegated() bool {
	if o.Invalid != nil || !o.Network.Delegates() {
		return false
	}
	return o.IPAM == nil || o.IPAM.V4 == nil && o.IPAM.V6 == nil
}

// InUse reports whether a node has an entry in the object's status: it covers addresses,
// or has an attachment whose DanmEp may not exist yet. A network in recovery counts as in
// use, because it may have lost an entry.
func (o *Object) InUse() bool {
	if o.IPAM == nil {
		return false
	}
	if o.Recovering() {
		return true
	}
	for name := range o.IPAM.Held {
		if IsNode(name) {
			return true
		}
	}
	return false
}

// IsNode reports whether an entry of that name can be a node's. Others, such as
// "!quarantine", give nothing back.
func IsNode(name string) bool { return !strings.HasPrefix(name, "!") }

// Recovering reports whether it is unknown which addresses are in use: a recovery is
// under way, or a node reports a rollback that the controller has not deferred.
func (o *Object) Recovering() bool { return o.IPAM != nil && Recovering(o.IPAM) }

// Recovering is Object.Recovering for a status.
func Recovering(s *v1.IPAMStatus) bool {
	if s.Recovering != nil {
		return true
	}
	for name, h := range s.Held {
		if _, deferred := s.RecoveryDeferredUntil[name]; h.Rollback != nil && !deferred && IsNode(name) {
			return true
		}
	}
	return false
}

// RollbackDue reports whether the garbage collector has to act on reports of rollbacks:
// one has to begin a recovery, or the time of a deferral is over.
func (o *Object) RollbackDue(now time.Time) bool {
	if o.IPAM == nil {
		return false
	}
	for name, h := range o.IPAM.Held {
		until := o.IPAM.RecoveryDeferredUntil[name]
		if IsNode(name) && Unanswered(h.Rollback, o.IPAM.Recovering) && !until.After(now) {
			return true
		}
	}
	for _, until := range o.IPAM.RecoveryDeferredUntil {
		if !until.After(now) {
			return true
		}
	}
	return false
}

// Unanswered reports whether no recovery answers the report of a rollback: there is no
// recovery, or it is the one that the older object was in.
func Unanswered(r *v1.RollbackReport, rec *v1.RecoveryStatus) bool {
	return r != nil && (rec == nil || r.RecoveryStartTime != nil && r.RecoveryStartTime.Time.Equal(rec.StartTime.Time))
}

// Endpoint is what a DanmEp says of an address.
type Endpoint struct {
	// Namespace, Name and UID of the DanmEp.
	Namespace, Name, UID string
	// Pod and PodUID name the Pod that it is of.
	Pod, PodUID string
	// NetworkUID is the network's UID; empty in DanmEps that DANM wrote, which
	// count for any network of the name.
	NetworkUID string
	// Node is spec.Host.
	Node string
	// ID is spec.EndpointID: DanmEps of one interface have the same.
	ID string
	// V4 and V6 are the addresses, without prefix length; invalid when none.
	V4, V6 netip.Addr
}

// Of reports whether the endpoint counts for the network with that UID.
func (e Endpoint) Of(uid string) bool { return e.NetworkUID == "" || e.NetworkUID == uid }

// Addrs returns the addresses of the endpoint.
func (e Endpoint) Addrs() []netip.Addr { return Valid(e.V4, e.V6) }

// Valid returns those of two addresses that are valid.
func Valid(a4, a6 netip.Addr) []netip.Addr {
	addrs := make([]netip.Addr, 0, 2)
	for _, a := range [...]netip.Addr{a4, a6} {
		if a.IsValid() {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// Owners are the addresses that DanmEps cover, with the DanmEps' names: those of one node,
// and those of others.
type Owners struct {
	Mine, Others map[netip.Addr]string
}

// OwnersOf sorts the endpoints of one network by whether they are of that node.
func OwnersOf(endpoints []Endpoint, uid, node string) Owners {
	o := Owners{Mine: map[netip.Addr]string{}, Others: map[netip.Addr]string{}}
	for _, e := range endpoints {
		if !e.Of(uid) {
			continue
		}
		into := o.Others
		if e.Node == node {
			into = o.Mine
		}
		for _, a := range e.Addrs() {
			into[a] = e.Name
		}
	}
	return o
}

// Has reports whether a DanmEp has the address.
func (o Owners) Has(a netip.Addr) bool { return o.HasMine(a) || o.HasOther(a) }

// HasMine reports whether a DanmEp of the node has the address.
func (o Owners) HasMine(a netip.Addr) bool {
	_, ok := o.Mine[a]
	return ok
}

// HasOther reports whether a DanmEp of another node has the address.
func (o Owners) HasOther(a netip.Addr) bool {
	_, ok := o.Others[a]
	return ok
}
