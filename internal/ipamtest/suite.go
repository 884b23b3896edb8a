// SPDX-License-Identifier: Apache-2.0

package ipamtest

import (
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Harness is a store and the other end of it: what users and node daemons do to
// the objects. Every test of the suite gets one of its own, or makes networks of
// its own in a shared one.
type Harness interface {
	// Store is what is tested.
	Store() allocator.Store
	// Create makes a network object with an IPv4 subnet, and returns it as
	// validated, with its UID.
	Create(t *testing.T, ref network.Ref, cidr string) *network.Network
	// Delete asks for the deletion of a network object.
	Delete(t *testing.T, ref network.Ref)
	// AddEndpoint makes a DanmEp, its namespace included.
	AddEndpoint(t *testing.T, ref network.Ref, ep status.Endpoint)
}

// Run runs the conformance suite. kind is the network kind to test with.
func Run(t *testing.T, kind string, start func(*testing.T) Harness) {
	t.Helper()
	tests := map[string]func(*suite){
		"GetOfNothing":          (*suite).getOfNothing,
		"FreshObject":           (*suite).freshObject,
		"UpdateWritesStatus":    (*suite).updateWritesStatus,
		"UpdateWithoutChange":   (*suite).updateWithoutChange,
		"UpdateConflicts":       (*suite).updateConflicts,
		"UpdateOfFormerObject":  (*suite).updateOfFormerObject,
		"UpdateOfNothing":       (*suite).updateOfNothing,
		"OneWriterWins":         (*suite).oneWriterWins,
		"SharesNoMemory":        (*suite).sharesNoMemory,
		"ProtectHoldsDeletion":  (*suite).protectHoldsDeletion,
		"ProtectConflicts":      (*suite).protectConflicts,
		"ProtectKeepsStatus":    (*suite).protectKeepsStatus,
		"EndpointsOfTheNetwork": (*suite).endpointsOfTheNetwork,
		"CancelledRequests":     (*suite).cancelledRequests,
		"AllocatorsAndFaults":   (*suite).allocatorsAndFaults,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &suite{T: t, Harness: start(t)}
			s.ref = network.Ref{Kind: kind, Name: objectName(t.Name())}
			if kind != v1.KindClusterNetwork {
				s.ref.Namespace = "default"
			}
			test(s)
		})
	}
}

// objectName makes a DNS label of a test's name.
func objectName(test string) string {
	var b []byte
	for _, c := range []byte(test) {
		switch {
		case 'A' <= c && c <= 'Z':
			b = append(b, c+'a'-'A')
		case 'a' <= c && c <= 'z':
			b = append(b, c)
		}
	}
	return string(b[max(0, len(b)-40):])
}

// suite is one test with a network name of its own.
type suite struct {
	*testing.T
	Harness
	ref network.Ref
}

func (s *suite) create() *network.Network { return s.Create(s.T, s.ref, "10.0.0.0/24") }

func (s *suite) get() *status.Object {
	s.Helper()
	o, err := s.Store().Get(s.Context(), s.ref)
	if err != nil {
		s.Fatal(err)
	}
	return o
}

// update writes a status and expects success.
func (s *suite) update(o *status.Object) *status.Object {
	s.Helper()
	written, err := s.Store().Update(s.Context(), o)
	if err != nil {
		s.Fatal(err)
	}
	return written
}

// status is one address of a node.
func ipamStatus(node, addr string) *v1.IPAMStatus {
	return &v1.IPAMStatus{
		V4:   &v1.AddressBitmap{CIDR: "10.0.0.0/24", Cursor: addr},
		Held: map[string]v1.HeldAddresses{node: {UID: "u", Seq: 1, V4: addr}},
	}
}
