// SPDX-License-Identifier: Apache-2.0

package reserve_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/internal/reserve"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
	"github.com/patchbay-cni/patchbay/test/random"
)

var errLost = errors.New("lost")

// store is an API server with one TenantConfig, that takes its time.
type store struct {
	mu     sync.Mutex
	object *v1.TenantConfig
	// others are listed too, and never written.
	others []*v1.TenantConfig
	// fault is what becomes of a write: nil, errLost (applied or not), or another.
	fault  func() (applied bool, err error)
	writes int
	lists  int
}

func newStore(ranges string) *store {
	c := &v1.TenantConfig{HostDevices: []v1.HostDevice{{Name: "ens4", VNIType: "vlan", VNIRange: ranges}}}
	c.Name, c.ResourceVersion = "tenants", "1"
	return &store{object: c}
}

func (s *store) List(context.Context) ([]*v1.TenantConfig, error) {
	time.Sleep(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	list := []*v1.TenantConfig{s.object.DeepCopy()}
	for _, o := range s.others {
		list = append(list, o.DeepCopy())
	}
	return list, nil
}

func (s *store) Update(_ context.Context, c *v1.TenantConfig) (*v1.TenantConfig, error) {
	time.Sleep(20 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		if applied, err := s.fault(); err != nil {
			if applied {
				s.put(c)
			}
			return nil, err
		}
	}
	if c.ResourceVersion != s.object.ResourceVersion {
		return nil, reserve.ErrConflict
	}
	s.put(c)
	return s.object.DeepCopy(), nil
}

func (s *store) put(c *v1.TenantConfig) {
	if c.ResourceVersion != s.object.ResourceVersion {
		return
	}
	s.writes++
	s.object.Status = *c.Status.DeepCopy()
	version, _ := strconv.Atoi(c.ResourceVersion)
	s.object.ResourceVersion = strconv.Itoa(version + 1)
}

func (s *store) edit(f func(*v1.TenantConfig)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.object)
	s.object.ResourceVersion += "0"
}

// reservations returns what is stored, by token.
func (s *store) reservations(t *testing.T) map[string]network.TenantSlot {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := tenant.ParseReservations(s.object.Status.Reservations)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]network.TenantSlot{}
	for r := range b.All() {
		got[r.Owner.Token] = r.Slot
	}
	return got
}

func request(i int) reserve.Request {
	return reserve.Request{
		Network: tenant.NetworkRequest{Namespace: "team-a", Type: v1.TypeIPVLAN},
		Owner:   tenant.Owner{Namespace: "team-a", Name: fmt.Sprintf("net%d", i), Token: fmt.Sprintf("%016x", i)},
	}
}

// Many creations at a time become few writes, and each gets another ID.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore("1-4094")
		d := reserve.New(t.Context(), s, nil)
		var g errgroup.Group
		for i := range 200 {
			g.Go(func() error {
				_, err := d.Reserve(t.Context(), request(i))
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if got := s.reservations(t); len(got) != 200 || s.writes > 3 {
			t.Errorf("200 creations: %d reservations in %d writes, want 200 in at most 3", len(got), s.writes)
		}
	})
}

// Whatever becomes of the writes, what a caller was told is stored, and nobody has
// another's ID.
func TestReplicasAndLostReplies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, intN := newStore("1-500"), random.IntN(t)
		s.fault = func() (bool, error) {
			if intN(4) == 0 {
				return intN(2) == 0, errLost
			}
			return false, nil
		}
		desks := []*reserve.Allocator{reserve.New(t.Context(), s, nil), reserve.New(t.Context(), s, nil), reserve.New(t.Context(), s, nil)}
		var mu sync.Mutex
		told := map[string]network.TenantSlot{}
		var g errgroup.Group
		for i := range 150 {
			g.Go(func() error {
				time.Sleep(time.Duration(intN(300)) * time.Millisecond)
				r := request(i)
				choice, err := desks[i%len(desks)].Reserve(t.Context(), r)
				for tries := 1; errors.Is(err, reserve.ErrUnavailable) && tries < 50; tries++ {
					choice, err = desks[i%len(desks)].Reserve(t.Context(), r) // as who asked would
				}
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				told[r.Owner.Token] = choice.Slot
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		stored, owners := s.reservations(t), map[network.TenantSlot]string{}
		for token, place := range told {
			if other, twice := owners[place]; twice || stored[token] != place {
				t.Errorf("%s was told %s: stored %s, another's %q", token, place, stored[token], other)
			}
			owners[place] = token
		}
		if len(told) != 150 {
			t.Errorf("%d of 150 were served", len(told))
		}
	})
}

func TestReserve(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		run    func(t *testing.T, s *store, d *reserve.Allocator)
	}{
		"DryRun": {"Nothing is stored, and the answer is right.", func(t *testing.T, s *store, d *reserve.Allocator) {
			t.Helper()
			r := request(1)
			r.DryRun = true
			choice, err := d.Reserve(t.Context(), r)
			if err != nil || choice.Slot.ID != 1 || s.writes != 0 {
				t.Errorf("got %v, %v with %d writes, want ID 1 without", choice.Slot, err, s.writes)
			}
		}},
		"Release": {"A released ID is free.", func(t *testing.T, s *store, d *reserve.Allocator) {
			t.Helper()
			for i := range 3 {
				mustReserve(t, d, i, i+1)
			}
			if err := d.Release(t.Context(), request(1).Owner.Token, "0000000000000099"); err != nil {
				t.Fatal(err)
			}
			mustReserve(t, d, 7, 2)
			if got := s.reservations(t); len(got) != 3 {
				t.Errorf("got %v, want 3", got)
			}
		}},
		"Full": {"A refusal says what is full; a netadmin's change is seen at once.", func(t *testing.T, s *store, d *reserve.Allocator) {
			t.Helper()
			for i := range 3 {
				mustReserve(t, d, i, i+1)
			}
			if _, err := d.Reserve(t.Context(), request(9)); !errors.Is(err, network.ErrInvalid) {
				t.Fatalf("full: got %v, want a refusal", err)
			}
			s.edit(func(c *v1.TenantConfig) { c.HostDevices[0].VNIRange = "1-4" })
			mustReserve(t, d, 9, 4)
		}},
		"Changed": {"A range that was taken away is not given out.", func(t *testing.T, s *store, d *reserve.Allocator) {
			t.Helper()
			mustReserve(t, d, 0, 1)
			s.edit(func(c *v1.TenantConfig) { c.HostDevices[0].VNIRange = "1,50" })
			mustReserve(t, d, 1, 50)
		}},
		"Away": {"Callers are told, and it works again later.", func(t *testing.T, s *store, d *reserve.Allocator) {
			t.Helper()
			s.fault = func() (bool, error) { return false, errLost }
			if _, err := d.Reserve(t.Context(), request(1)); !errors.Is(err, reserve.ErrUnavailable) || !errors.Is(err, errLost) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
			s.fault = nil
			mustReserve(t, d, 2, 1)
		}},
		"Damaged": {"A status that cannot be read is not written over, and nothing is given of it.", func(t *testing.T, s *store, d *reserve.Allocator) {
			t.Helper()
			s.edit(func(c *v1.TenantConfig) { c.Status.Reservations = map[string]string{"x": "y"} })
			if _, err := d.Reserve(t.Context(), request(1)); !errors.Is(err, network.ErrInvalid) || s.writes != 0 {
				t.Errorf("got %v and %d writes, want a refusal and none", err, s.writes)
			}
			s.edit(func(c *v1.TenantConfig) { c.Status.Reservations = nil })
			mustReserve(t, d, 1, 1)
		}},
		"DamagedOther": {"It is in the way of its own tenants only.", func(t *testing.T, s *store, d *reserve.Allocator) {
			t.Helper()
			other := newStore("50-60").object
			other.Name, other.Status.Reservations = "other", map[string]string{"vlan/ens4/0": "50 red/Bad 0000000000000001"}
			s.others = []*v1.TenantConfig{other}
			mustReserve(t, d, 1, 1)
			if all, err := d.List(t.Context()); err != nil || len(all) != 1 {
				t.Errorf("Reserved: got %v, %v, want one", all, err)
			}
			if err := d.Release(t.Context(), request(1).Owner.Token); err != nil || len(s.reservations(t)) != 0 {
				t.Errorf("Release: got %v, %v left", err, s.reservations(t))
			}
		}},
		"Younger": {"Of two that overlap, the younger one gives nothing.", func(t *testing.T, s *store, d *reserve.Allocator) {
			t.Helper()
			older := newStore("2-9").object
			older.Name, older.HostDevices = "older", append(older.HostDevices, v1.HostDevice{Name: "ens5", VNIType: "vlan", VNIRange: "7"})
			older.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "other"}}
			mustReserve(t, d, 0, 1)
			s.edit(func(c *v1.TenantConfig) { c.CreationTimestamp = metav1.Unix(2, 0) })
			older.CreationTimestamp = metav1.Unix(1, 0)
			s.others = []*v1.TenantConfig{older}
			time.Sleep(time.Minute)
			if choice, err := d.Reserve(t.Context(), request(9)); !errors.Is(err, network.ErrInvalid) {
				t.Errorf("got %v, %v, want a refusal", choice.Slot, err)
			}
			if all, err := d.List(t.Context()); err != nil || len(all) != 1 {
				t.Errorf("what it has given stays: got %v, %v", all, err)
			}
			if err := d.Release(t.Context(), request(0).Owner.Token); err != nil || len(s.reservations(t)) != 0 {
				t.Errorf("and is released: got %v, %v left", err, s.reservations(t))
			}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStore("1-3")
				tc.run(t, s, reserve.New(t.Context(), s, nil))
			})
		})
	}
}

func mustReserve(t *testing.T, d *reserve.Allocator, i, id int) {
	t.Helper()
	choice, err := d.Reserve(t.Context(), request(i))
	if err != nil || choice.Slot.ID != id {
		t.Errorf("reserve for %d: got %v, %v, want ID %d", i, choice.Slot, err, id)
	}
}
