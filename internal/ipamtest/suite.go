// SPDX-License-Identifier: Apache-2.0

package ipamtest

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// Harness has the store under test, and changes objects like users and node daemons. Each test of the
// suite gets its own Harness, or uses its own networks in a shared one.
type Harness interface {
	// Store returns the store under test.
	Store() allocator.Store
	// Create creates a network object with an IPv4 subnet, and returns it as validated, with
	// its UID.
	Create(t *testing.T, ref network.Ref, cidr string) *network.Network
	// Delete requests the deletion of a network object.
	Delete(t *testing.T, ref network.Ref)
	// AddEndpoint creates a DanmEp and its namespace.
	AddEndpoint(t *testing.T, ref network.Ref, ep status.Endpoint)
}

// Run runs the conformance suite with networks of that kind.
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

// ipamStatus returns a status.ipam with one address of a node.
func ipamStatus(node, addr string) *v1.IPAMStatus {
	return &v1.IPAMStatus{
		V4:   &v1.AddressBitmap{CIDR: "10.0.0.0/24", Cursor: addr},
		Held: map[string]v1.HeldAddresses{node: {UID: "u", Seq: 1, V4: addr}},
	}
}

func (s *suite) getOfNothing() {
	if _, err := s.Store().Get(s.Context(), s.ref); !errors.Is(err, status.ErrNotFound) {
		s.Errorf("Get() = %v, want ErrNotFound", err)
	}
}

func (s *suite) freshObject() {
	net, o := s.create(), s.get()
	if o.Ref != s.ref || o.UID == "" || o.UID != net.UID || o.ResourceVersion == "" || o.Generation != net.Generation {
		s.Errorf("got %+v of %+v", o, net)
	}
	if o.IPAM != nil || o.Deleting || o.Protected {
		s.Errorf("a new object has a status: %+v", o)
	}
	if o.Network == nil || o.Network.UID != o.UID || o.Network.V4 == nil || o.Network.V4.CIDR.String() != "10.0.0.0/24" {
		s.Errorf("got network %+v", o.Network)
	}
}

func (s *suite) updateWritesStatus() {
	s.create()
	o := s.get()
	o.IPAM = ipamStatus("n1", "10.0.0.1")
	written := s.update(o)
	if written.ResourceVersion == o.ResourceVersion {
		s.Error("a write left the version as it was")
	}
	for name, got := range map[string]*status.Object{"as written": written, "as read": s.get()} {
		if got.UID != o.UID || got.Generation != o.Generation {
			s.Errorf("%s: %+v, want %+v", name, got, o)
		}
		if diff := cmp.Diff(o.IPAM, got.IPAM); diff != "" {
			s.Errorf("%s, -want +got:\n%s", name, diff)
		}
	}
}

// The API server ignores a write without a change, so that it fences no other write.
func (s *suite) updateWithoutChange() {
	s.create()
	o := s.get()
	o.IPAM = ipamStatus("n1", "10.0.0.1")
	first := s.update(o)
	second := s.update(first)
	if first.ResourceVersion != second.ResourceVersion {
		s.Errorf("versions %s, %s", first.ResourceVersion, second.ResourceVersion)
	}
}

func (s *suite) updateConflicts() {
	s.create()
	mine, theirs := s.get(), s.get()
	theirs.IPAM = ipamStatus("n2", "10.0.0.2")
	s.update(theirs)
	mine.IPAM = ipamStatus("n1", "10.0.0.1")
	if _, err := s.Store().Update(s.Context(), mine); !errors.Is(err, status.ErrConflict) {
		s.Errorf("Update() = %v, want ErrConflict", err)
	}
	if diff := cmp.Diff(theirs.IPAM, s.get().IPAM); diff != "" {
		s.Errorf("the refused write shows: -want +got:\n%s", diff)
	}
}

func (s *suite) updateOfFormerObject() {
	s.create()
	former := s.get()
	s.Delete(s.T, s.ref)
	s.create()
	former.IPAM = ipamStatus("n1", "10.0.0.1")
	if _, err := s.Store().Update(s.Context(), former); !errors.Is(err, status.ErrConflict) {
		s.Errorf("Update() = %v, want ErrConflict", err)
	}
	if _, err := s.Store().Protect(s.Context(), former, true); !errors.Is(err, status.ErrConflict) {
		s.Errorf("Protect() = %v, want ErrConflict", err)
	}
	if o := s.get(); o.IPAM != nil || o.Protected || o.UID == former.UID {
		s.Errorf("the new object is %+v", o)
	}
}

// The API server checks the UID first, so that it may return a conflict for a deleted object.
func (s *suite) updateOfNothing() {
	s.create()
	o := s.get()
	s.Delete(s.T, s.ref)
	o.IPAM = ipamStatus("n1", "10.0.0.1")
	_, update := s.Store().Update(s.Context(), o)
	_, protect := s.Store().Protect(s.Context(), o, true)
	for name, err := range map[string]error{"Update": update, "Protect": protect} {
		if !errors.Is(err, status.ErrNotFound) && !errors.Is(err, status.ErrConflict) {
			s.Errorf("%s() = %v, want ErrNotFound or ErrConflict", name, err)
		}
	}
}

func (s *suite) oneWriterWins() {
	s.create()
	o := s.get()
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		mine := *o
		mine.IPAM = ipamStatus("n"+strconv.Itoa(i), "10.0.0.1")
		wg.Go(func() { _, errs[i] = s.Store().Update(s.Context(), &mine) })
	}
	wg.Wait()
	won := 0
	for i, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, status.ErrConflict):
			s.Errorf("writer %d: %v, want ErrConflict", i, err)
		}
	}
	if won != 1 {
		s.Errorf("%d of 8 writes on one version were made", won)
	}
}

func (s *suite) sharesNoMemory() {
	s.create()
	o := s.get()
	o.IPAM = ipamStatus("n1", "10.0.0.1")
	written := s.update(o)
	o.IPAM.V4.Cursor, written.IPAM.V4.Cursor = "10.0.0.77", "10.0.0.78"
	written.IPAM.Held["n9"] = written.IPAM.Held["n1"]
	if diff := cmp.Diff(ipamStatus("n1", "10.0.0.1"), s.get().IPAM); diff != "" {
		s.Errorf("-want +got:\n%s", diff)
	}
}

func (s *suite) protectHoldsDeletion() {
	s.create()
	o, err := s.Store().Protect(s.Context(), s.get(), true)
	if err != nil || !o.Protected || o.Deleting {
		s.Fatalf("Protect() = %+v, %v", o, err)
	}
	if again, err := s.Store().Protect(s.Context(), o, true); err != nil || !again.Protected {
		s.Errorf("a second time: %+v, %v", again, err)
	}
	s.Delete(s.T, s.ref)
	if o = s.get(); !o.Deleting || !o.Protected {
		s.Fatalf("deletion did not wait: %+v", o)
	}
	o.IPAM = ipamStatus("n1", "10.0.0.1")
	o = s.update(o)
	if _, err := s.Store().Protect(s.Context(), o, false); err != nil {
		s.Fatal(err)
	}
	if _, err := s.Store().Get(s.Context(), s.ref); !errors.Is(err, status.ErrNotFound) {
		s.Errorf("Get() = %v, want ErrNotFound", err)
	}
}

func (s *suite) protectConflicts() {
	s.create()
	o := s.get()
	other := *o
	other.IPAM = ipamStatus("n1", "10.0.0.1")
	s.update(&other)
	if _, err := s.Store().Protect(s.Context(), o, true); !errors.Is(err, status.ErrConflict) {
		s.Errorf("Protect() = %v, want ErrConflict", err)
	}
	if s.get().Protected {
		s.Error("the refused finalizer is there")
	}
}

func (s *suite) protectKeepsStatus() {
	s.create()
	o := s.get()
	o.IPAM = ipamStatus("n1", "10.0.0.1")
	protected, err := s.Store().Protect(s.Context(), s.update(o), true)
	if err != nil {
		s.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		if diff := cmp.Diff(o.IPAM, protected.IPAM); diff != "" {
			s.Errorf("finalizer %v: -want +got:\n%s", on, diff)
		}
		if protected, err = s.Store().Protect(s.Context(), protected, false); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *suite) endpointsOfTheNetwork() {
	net := s.create()
	other := s.ref
	other.Name += "2"
	s.Create(s.T, other, "10.1.0.0/24")
	ep := func(ref network.Ref, name, v4, v6 string) status.Endpoint {
		e := status.Endpoint{
			Namespace: "default", Name: ref.Name + name, Pod: "pod-" + name, PodUID: "uid-" + name, NetworkUID: net.UID, Node: "n" + name, ID: "id-" + name,
		}
		e.V4, _ = netip.ParseAddr(v4)
		e.V6, _ = netip.ParseAddr(v6)
		s.AddEndpoint(s.T, ref, e)
		return e
	}
	want := []status.Endpoint{ep(s.ref, "1", "10.0.0.1", "fd00::1"), ep(s.ref, "2", "10.0.0.2", ""), ep(s.ref, "3", "", "")}
	ep(other, "1", "10.1.0.1", "")
	got, err := s.Store().Endpoints(s.Context(), s.ref)
	if err != nil {
		s.Fatal(err)
	}
	for i := range got {
		if got[i].UID == "" || i > 0 && got[i].UID == got[i-1].UID {
			s.Errorf("%s has the UID %q: another DanmEp of its name cannot be told from it", got[i].Name, got[i].UID)
		}
		got[i].UID = ""
	}
	byAddr := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, got, byAddr); diff != "" {
		s.Errorf("-want +got:\n%s", diff)
	}
}

// A cancelled request must not return an error that means a result of the write.
func (s *suite) cancelledRequests() {
	s.create()
	o := s.get()
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	_, get := s.Store().Get(ctx, s.ref)
	_, update := s.Store().Update(ctx, o)
	_, protect := s.Store().Protect(ctx, o, true)
	_, list := s.Store().Endpoints(ctx, s.ref)
	for name, err := range map[string]error{"Get": get, "Update": update, "Protect": protect, "Endpoints": list} {
		if err == nil || errors.Is(err, status.ErrConflict) || errors.Is(err, status.ErrNotFound) {
			s.Errorf("%s() = %v, want an error that is neither ErrConflict nor ErrNotFound", name, err)
		}
	}
}

// allocatorsAndFaults has four nodes claim concurrently and then discard, while requests have conflicts,
// are lost, lose their response, or arrive late, 10 % each.
func (s *suite) allocatorsAndFaults() {
	const nodes, each = 4, 20
	net := s.create()
	faulty := &Faulty{Store: s.Store(), Next: Dice(1, 10, 10*time.Millisecond)}
	got := make([][]netip.Addr, nodes)
	fleet := make([]*allocator.Allocator, nodes)
	var wg sync.WaitGroup
	for i := range fleet {
		name := "n" + strconv.Itoa(i)
		fleet[i] = allocator.New(faulty, allocator.Config{Node: name, NodeUID: name, WarmPoolSize: -1, Cooldown: -1})
		defer fleet[i].Close()
		wg.Go(func() { got[i] = s.claimAll(fleet[i], net, each) })
	}
	wg.Wait()
	faulty.Wait()

	owner := map[netip.Addr]int{}
	for i, addrs := range got {
		for _, a := range addrs {
			if other, taken := owner[a]; taken {
				s.Errorf("%v is node %d's and node %d's", a, other, i)
			}
			owner[a] = i
		}
	}
	o := s.get()
	used, err := Bits(o.IPAM.V4)
	if err := errors.Join(err, Covered(o, nil)); err != nil {
		s.Error(err)
	}
	if len(used) < nodes*each || len(owner) != nodes*each {
		s.Errorf("%d bits, %d addresses for %d claims", len(used), len(owner), nodes*each)
	}
	for a, i := range owner {
		fleet[i].Discard(net, a, netip.Addr{})
	}
	s.untilEmpty()
}

// claimAll makes n concurrent claims, and retries each until it succeeds.
func (s *suite) claimAll(a *allocator.Allocator, net *network.Network, n int) []netip.Addr {
	addrs := make([]netip.Addr, n)
	var wg sync.WaitGroup
	for i := range addrs {
		wg.Go(func() {
			for s.Context().Err() == nil {
				a4, _, err := a.Claim(s.Context(), net, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{})
				if err == nil {
					addrs[i] = a4
					return
				}
				if !errors.Is(err, status.ErrTryAgain) {
					s.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return addrs
}

// untilEmpty waits until no bit is set and no entry is left.
func (s *suite) untilEmpty() {
	s.Helper()
	var o *status.Object
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		o = s.get()
		if o.IPAM.V4.Pages == nil && o.IPAM.Held == nil {
			return
		}
	}
	s.Errorf("left after a minute: %+v", o.IPAM)
}
