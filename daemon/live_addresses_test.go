// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// Many networks ask at the same time, and one reading serves them; a failed one
// serves nobody.
func TestLiveAddressesAreReadOnceForMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		readings := 0
		away := errors.New("away")
		l := &liveAddresses{read: func(context.Context) (map[netip.Addr]bool, error) {
			if readings++; readings == 1 {
				return nil, away
			}
			return map[netip.Addr]bool{}, nil
		}}
		if _, err := l.get(t.Context()); !errors.Is(err, away) {
			t.Errorf("got error %v, want the reading's", err)
		}
		for range 100 {
			if _, err := l.get(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if readings != 2 {
			t.Errorf("%d readings, want one that failed and one for all", readings)
		}
		time.Sleep(liveAddressesTTL)
		if _, err := l.get(t.Context()); err != nil || readings != 3 {
			t.Errorf("%d readings, %v, want another one after %s", readings, err, liveAddressesTTL)
		}
	})
}
