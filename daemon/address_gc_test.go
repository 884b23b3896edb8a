// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A claim of a former life that is written late is found: the networks are read
// again before the second look.
func TestSettleLooksAgainAfterLateWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start, tries := time.Now(), 0
		var mu sync.Mutex
		var calls []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, fmt.Sprint(what, " ", time.Since(start).Round(time.Second)))
		}
		made := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(calls)
		}
		go collectAddresses(ctx,
			func(context.Context) error { note("reread"); return nil },
			func(context.Context) error {
				note("settle")
				if tries++; tries == 1 {
					return errors.New("the API server is away")
				}
				return nil
			})
		time.Sleep(inFlightWriteTimeout + time.Minute)
		want := []string{"settle 0s", "settle 0s", "reread 2m0s", "settle 2m0s"}
		if diff := cmp.Diff(want, made()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		time.Sleep(2 * addressGCInterval)
		if len(made()) <= len(want) {
			t.Error("nobody looks again after what an interface had")
		}
		cancel()
	})
}

func TestZeroOfAFlagIsNone(t *testing.T) {
	t.Parallel()
	if zeroToDisabled(0) != -1 || zeroToDisabled(7) != 7 || zeroToDisabled(time.Duration(0)) >= 0 {
		t.Error("0 on the command line must not become the default")
	}
}
