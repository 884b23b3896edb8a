// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/ipam/ipamtest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// eventually polls until try succeeds; after a minute the test fails with its last error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s: %v", what, err)
		}
	}
}

// readNetwork returns the network as stored, after checking who covers its bits.
func readNetwork(t *testing.T, env *apitest.Env, n *network.Network) (*claims.Object, error) {
	t.Helper()
	store := newStore(t, env.Config, "observer")
	// The object first: an address may then leave its entry for a DanmEp unseen, but a
	// DanmEp that the list misses was not there when the entry was read.
	o, err := store.Get(t.Context(), n.Ref)
	if err != nil {
		return nil, err
	}
	endpoints, err := store.Endpoints(t.Context(), n.Ref)
	if err != nil {
		return nil, err
	}
	return o, ipamtest.Covered(o, endpoints)
}

// checkUsed returns nil when exactly this many addresses are in use or held.
func checkUsed(t *testing.T, env *apitest.Env, n *network.Network, want int) error {
	t.Helper()
	o, err := readNetwork(t, env, n)
	if err != nil {
		return err
	}
	if o.IPAM == nil {
		return errors.New("the state of the addresses is unknown")
	}
	bits, err := ipamtest.Bits(o.IPAM.V4)
	if err != nil {
		return err
	}
	if len(bits) != want || o.Allocated != int64(want) {
		return fmt.Errorf("%d addresses are in use, %d are said to be, want %d: %v", len(bits), o.Allocated, want, bits)
	}
	return nil
}

// checkNoEntries returns nil when no node has an entry.
func checkNoEntries(t *testing.T, env *apitest.Env, n *network.Network) error {
	t.Helper()
	o, err := readNetwork(t, env, n)
	if err == nil && o.IPAM != nil && len(o.IPAM.Held) > 0 {
		err = fmt.Errorf("entries are left: %v", o.IPAM.Held)
	}
	return err
}
