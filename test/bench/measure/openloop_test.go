// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOpenLoop(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	cases := map[string]struct {
		reason string
		do     func(i int)
		took   []time.Duration
		all    time.Duration
	}{
		"Quick": {reason: "Each request starts at its time.", do: func(int) {}, took: []time.Duration{0, 0, 0, 0}, all: 300 * ms},
		"Slow": {
			reason: "A slow request delays no other one.",
			do:     func(int) { time.Sleep(250 * ms) }, took: []time.Duration{250 * ms, 250 * ms, 250 * ms, 250 * ms}, all: 550 * ms,
		},
		"OneSlow": {
			reason: "The end is that of the last request.",
			do: func(i int) {
				if i == 1 {
					time.Sleep(time.Second)
				}
			},
			took: []time.Duration{0, time.Second, 0, 0}, all: 1100 * ms,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, err := OpenLoop{Rate: 10, Requests: 4}.Run(t.Context(), func(_ context.Context, i int) error { tc.do(i); return nil })
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(Result{Took: tc.took, Elapsed: tc.all}, r); diff != "" {
					t.Errorf("%s\nresult: -want +got\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// A loop that is held up, as on a busy machine, counts the delay of the requests that it makes late.
func TestOpenLoopCountsDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now().Add(-150 * time.Millisecond)
		r, err := OpenLoop{Rate: 10, Requests: 3}.run(t.Context(), begin, func(context.Context, int) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]time.Duration{150 * time.Millisecond, 50 * time.Millisecond, 0}, r.Took); diff != "" {
			t.Errorf("times: -want +got\n%s", diff)
		}
	})
}

func TestOpenLoopEnds(t *testing.T) {
	t.Parallel()
	errRefused := errors.New("refused")
	made := 0
	synctest.Test(t, func(t *testing.T) {
		_, err := OpenLoop{Rate: 10, Requests: 100}.Run(t.Context(), func(context.Context, int) error { made++; return errRefused })
		if !errors.Is(err, errRefused) {
			t.Errorf("got %v, want the error of the request", err)
		}
	})
	if made > 2 {
		t.Errorf("%d requests were made after an error", made)
	}
}

func TestReached(t *testing.T) {
	t.Parallel()
	if got := (Result{Took: make([]time.Duration, 30), Elapsed: 2 * time.Second}).Reached(); got != 15 {
		t.Errorf("got %v requests a second, want 15", got)
	}
}
