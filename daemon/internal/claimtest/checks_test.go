// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// eventually polls until check succeeds. After a minute, it fails the test with the last error.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited a minute until %s: %v", what, err)
		}
	}
}

// readNetwork returns the stored network, after a check that entries and DanmEps cover all its bits.
func readNetwork(t *testing.T, env *apitest.Env, n *network.Network) (*status.Object, error) {
	t.Helper()
	store := newStore(t, env.Config, "observer")
	// The object comes first. An address may move from its entry to a DanmEp in between, but a DanmEp that
	// the list lacks did not exist when the entry was read.
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

// checkUsed returns an error unless exactly this many bits are set.
func checkUsed(t *testing.T, env *apitest.Env, n *network.Network, want int) error {
	t.Helper()
	o, err := readNetwork(t, env, n)
	if err != nil {
		return err
	}
	if o.IPAM == nil {
		return errors.New("status.ipam is not set")
	}
	bits, err := ipamtest.Bits(o.IPAM.V4)
	if err != nil {
		return err
	}
	if n := ipamtest.Allocated(o.IPAM); len(bits) != want || n != int64(want) {
		return fmt.Errorf("got %d bits and allocated %d, want %d: %v", len(bits), n, want, bits)
	}
	return nil
}

// checkNoEntries returns an error if a node has an entry.
func checkNoEntries(t *testing.T, env *apitest.Env, n *network.Network) error {
	t.Helper()
	o, err := readNetwork(t, env, n)
	if err == nil && o.IPAM != nil && len(o.IPAM.Held) > 0 {
		err = fmt.Errorf("got entries %v, want none", o.IPAM.Held)
	}
	return err
}
