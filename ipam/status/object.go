// SPDX-License-Identifier: Apache-2.0

// Package status reads and plans status.ipam of a network: the nodes' entries and the bitmaps,
// together with the DanmEps, which also cover addresses. It does no I/O. Packages allocator and
// gc share it.
package status

import (
	"errors"
	"net/netip"
	"strings"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Errors of a store, and those that allocator and gc share.
var (
	// ErrConflict means that the object has changed since it was read: the write was not
	// applied and never will be.
	ErrConflict = errors.New("object has changed")
	// ErrNotFound means that there is no object of that name.
	ErrNotFound = errors.New("not found")
	// ErrTryAgain means that a later attempt may succeed (CNI error 11).
	ErrTryAgain = errors.New("try again later")
	// ErrUnknownState means that status.ipam is missing or cannot be parsed, and could not be
	// rebuilt.
	ErrUnknownState = errors.New("state of the network's addresses is unknown")
)

// Object is a network object as stored by the API server. Callers may change an Object that a store
// returned.
type Object struct {
	// Ref names the object.
	Ref network.Ref
	// UID distinguishes it from earlier objects of the same name.
	UID string
	// Generation of the spec.
	Generation int64
	// ResourceVersion is that of the read or write that returned this object.
	ResourceVersion string
	// Deleting means that it has a deletion timestamp.
	Deleting bool
	// Protected means that it has the finalizer danm.io/in-use.
	Protected bool
	// Network is the validated spec, nil when Invalid.
	Network *network.Network
	// Invalid is the validation error of the spec, which names field and rule.
	Invalid error

	// IPAM is status.ipam; nil means unknown, not empty.
	IPAM *v1.IPAMStatus

	// Extra is private to the store: the rest of the object, which its writes must not change.
	// Copies of an Object keep it.
	Extra any
}

// Subnets returns the subnets of the network: none if the spec is invalid, or if another plugin
// assigns the addresses.
func (o *Object) Subnets() (v4, v6 *network.Subnet) {
	if o.Invalid != nil || o.Network.Delegates() {
		return nil, nil
	}
	return o.Network.V4, o.Network.V6
}

// Delegated reports whether another plugin assigns the addresses in the network's DanmEps. If there
// is a bitmap, the network had another type before, and Patchbay may have assigned some of them.
func (o *Object) Delegated() bool {
	if o.Invalid != nil || !o.Network.Delegates() {
		return false
	}
	return o.IPAM == nil || o.IPAM.V4 == nil && o.IPAM.V6 == nil
}

// InUse reports whether a node has an entry in the object's status: the node covers addresses, or
// has an attachment whose DanmEp may not exist yet. A network in recovery counts as in use, because
// it may have lost an entry.
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

// IsNode reports whether an entry of that name can be a node's. Other entries, such as
// "!quarantine", react to no reclaim request.
func IsNode(name string) bool { return !strings.HasPrefix(name, "!") }

// Recovering reports whether it is unknown which addresses are in use: a recovery is in progress,
// or a node reports a rollback that the controller has not deferred.
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

// RollbackDue reports whether the garbage collector has to act on reports of rollbacks: one has to
// start a recovery, or a deferral has expired.
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

// Unanswered reports whether no recovery was started for the report of a rollback: there is no
// recovery, or it came back with the rollback.
func Unanswered(r *v1.RollbackReport, rec *v1.RecoveryStatus) bool {
	return r != nil && (rec == nil || r.RecoveryStartTime != nil && r.RecoveryStartTime.Time.Equal(rec.StartTime.Time))
}

// Endpoint has the fields of a DanmEp that matter for addresses.
type Endpoint struct {
	// Namespace, Name and UID of the DanmEp.
	Namespace, Name, UID string
	// Pod and PodUID name its Pod.
	Pod, PodUID string
	// NetworkUID is the network's UID. It is empty in DanmEps that DANM wrote, which match
	// any network of the name.
	NetworkUID string
	// Node is spec.Host.
	Node string
	// ID is spec.EndpointID, which is equal for all DanmEps of one interface.
	ID string
	// V4 and V6 are the addresses, without prefix length; invalid if it has none.
	V4, V6 netip.Addr
}

// Of reports whether the endpoint belongs to the network with that UID.
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

// Owners are the addresses that DanmEps cover, with the names of the DanmEps: Mine of one node, and
// Others of all others.
type Owners struct {
	Mine, Others map[netip.Addr]string
}

// OwnersOf returns the owners in the network with that UID, from the point of view of a node.
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
