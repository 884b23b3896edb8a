// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A late write of an earlier incarnation is found: the networks are read again before the second
// collection.
func TestCollectUnusedAfterLateWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start, attempts := time.Now(), 0
		var mu sync.Mutex
		var calls []string
		record := func(call string) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, fmt.Sprint(call, " ", time.Since(start).Round(time.Second)))
		}
		recorded := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(calls)
		}
		go collectUnused(ctx,
			func(context.Context) error { record("read"); return nil },
			func(context.Context) error {
				record("settle")
				if attempts++; attempts == 1 {
					return errors.New("the API server is unreachable")
				}
				return nil
			})
		time.Sleep(inFlightWriteTimeout + time.Minute)
		want := []string{"settle 0s", "settle 0s", "read 2m0s", "settle 2m0s"}
		if diff := cmp.Diff(want, recorded()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		time.Sleep(2 * addressGCInterval)
		if len(recorded()) <= len(want) {
			t.Error("got no later collection, want one at each interval")
		}
		cancel()
	})
}

// A flag of 0 must not become the default of the allocator.
func TestZeroToDisabled(t *testing.T) {
	t.Parallel()
	if zeroToDisabled(0) != -1 || zeroToDisabled(7) != 7 || zeroToDisabled(time.Duration(0)) >= 0 {
		t.Error("zeroToDisabled must return -1 for 0, and any other value unchanged")
	}
}

// Many networks share one reading. A failed reading is not shared.
func TestLiveAddressesAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		readings := 0
		failure := errors.New("failure")
		l := &liveAddresses{read: func(context.Context) (map[netip.Addr]bool, error) {
			if readings++; readings == 1 {
				return nil, failure
			}
			return map[netip.Addr]bool{}, nil
		}}
		if _, err := l.get(t.Context()); !errors.Is(err, failure) {
			t.Errorf("got error %v, want that of the reading", err)
		}
		for range 100 {
			if _, err := l.get(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if readings != 2 {
			t.Errorf("got %d readings, want one that failed and one for all networks", readings)
		}
		time.Sleep(liveAddressesTTL)
		if _, err := l.get(t.Context()); err != nil || readings != 3 {
			t.Errorf("got %d readings and error %v, want another reading after %s", readings, err, liveAddressesTTL)
		}
	})
}
