// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// stubJournal returns one error from all writes.
type stubJournal struct {
	attach.Journal
	err error
}

// Put implements attach.Journal.
func (j stubJournal) Put(*attach.Record) error { return j.err }

// Delete implements attach.Journal.
func (j stubJournal) Delete(string, string) error { return j.err }

// The callback runs after a record has stopped using its link, and not before.
func TestLinkJournal(t *testing.T) {
	t.Parallel()
	diskFull := errors.New("disk full")
	put := func(s attach.State) func(attach.Journal) error {
		return func(j attach.Journal) error { return j.Put(&attach.Record{State: s}) }
	}
	cases := map[string]struct {
		reason string
		write  func(attach.Journal) error
		err    error
		want   bool
	}{
		"Attaching":    {reason: "The Pod uses the link.", write: put(attach.Attaching)},
		"Released":     {reason: "The Pod has ended.", write: put(attach.Released), want: true},
		"NotJournaled": {reason: "The record still uses the link.", write: put(attach.Released), err: diskFull},
		"RolledBack":   {reason: "The ADD was rolled back.", write: func(j attach.Journal) error { return j.Delete("c", "eth0") }, want: true},
		"NotDeleted":   {reason: "The record still uses the link.", write: func(j attach.Journal) error { return j.Delete("c", "eth0") }, err: diskFull},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			called := false
			err := tc.write(linkJournal{stubJournal{err: tc.err}, func() { called = true }})
			if called != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s: got called %v and error %v, want %v and %v", tc.reason, called, err, tc.want, tc.err)
			}
		})
	}
}

// Only sandboxes that are not released use host links.
func TestPodLinks(t *testing.T) {
	t.Parallel()
	j, err := journal.Open(filepath.Join(t.TempDir(), "j"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	record := func(id string, state attach.State, n network.Network) {
		rec := &attach.Record{ContainerID: id, IfName: "eth0", State: state, Interfaces: []attach.Interface{{Network: n}}}
		if err := j.Put(rec); err != nil {
			t.Fatal(err)
		}
	}
	vlan := network.Network{Type: "ipvlan", Device: "ens4", VLAN: 500}
	record("attached", attach.Attached, vlan)
	record("attaching", attach.Attaching, network.Network{Type: "macvlan", Device: "ens4", VXLAN: 700})
	record("released", attach.Released, network.Network{Type: "ipvlan", Device: "ens4", VLAN: 501})
	record("delegated", attach.Attached, network.Network{Type: "bridge"})
	record("delegated to a VLAN", attach.Attached, network.Network{Type: "bridge", Device: "ens5", VLAN: 5})
	// These use tagged frames of the NIC, so that they do not make the NIC itself a link in use.
	record("delegated to a NIC", attach.Attached, network.Network{Type: "bridge", Device: "ens6"})
	record("on a trunk", attach.Attached, network.Network{Type: "macvlan", Device: "ens8", Trunk: true})
	flat := network.Network{Type: "macvlan", Device: "ens7"}
	record("on a NIC", attach.Attached, flat)

	got, err := podLinks{j}.Links()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := vlan.Link()
	nic, _ := flat.Link()
	if len(got) != 4 || !got[id] || !got[nic] {
		t.Errorf("got links in use %v, want the VLANs 500 and 5, the VXLAN 700 and the NIC ens7", got)
	}
}
