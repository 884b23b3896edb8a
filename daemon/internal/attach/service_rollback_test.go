// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// kinds are the ways in which one call of a port can fail.
func kinds(kill bool) map[string]fault {
	return map[string]fault{
		"Refused":    {kill: kill},
		"AnswerLost": {kill: kill, after: true},
	}
}

// Whatever call of an ADD fails, the ADD fails and leaves nothing, without DEL.
func TestAddLeavesNothing(t *testing.T) {
	t.Parallel()
	for kind, f := range kinds(false) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for k := 1; ; k++ {
				w := newWorld()
				l, err := w.start(map[int]fault{k: f})
				if err != nil {
					continue // the fault hit Resume
				}
				req := w.sandbox("a")
				_, err = l.Add(context.Background(), req)
				if len(l.calls) < k {
					if err != nil || k < 12 {
						t.Fatalf("after %d faults: %v, calls %q", k, err, l.calls)
					}
					return // no call is left to fail
				}
				if call := l.calls[k-1]; err == nil && !silent(call) && call != "Exists" {
					t.Fatalf("%s failed and ADD did not", call)
				}
				if err != nil {
					if !errors.Is(err, errInjected) {
						t.Fatalf("%s failed and ADD said %v", l.calls[k-1], err)
					}
					w.mustBeEmpty(t, "after "+l.calls[k-1])
				}
			}
		})
	}
}

// When the roll-back fails too, the record stays until DEL, and DEL brings
// everything to its end.
func TestDelAfterFailedRollBack(t *testing.T) {
	t.Parallel()
	for kind, f := range kinds(false) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pairs := 0
			for first := 2; first < 40; first++ {
				for second := first + 1; second < 40; second++ {
					w := newWorld()
					l, err := w.start(map[int]fault{first: f, second: f})
					if err != nil {
						t.Fatal(err)
					}
					req := w.sandbox("a")
					_, err = l.Add(context.Background(), req)
					if len(l.calls) < second {
						break
					}
					pairs++
					l.faults = nil
					if err := w.check(); err != nil {
						t.Fatalf("faults %d and %d: %v", first, second, err)
					}
					if err := l.Del(context.Background(), req); err != nil {
						t.Fatalf("faults %d and %d: DEL: %v", first, second, err)
					}
					l.drain()
					w.mustBeEmpty(t, fmt.Sprintf("after faults %d and %d (%v) in %q", first, second, err, l.calls))
				}
			}
			if pairs < 50 {
				t.Fatalf("only %d pairs of faults were tried", pairs)
			}
		})
	}
}

// Whatever call of a DEL fails, the next DEL finds what is left.
func TestDelIsRepeated(t *testing.T) {
	t.Parallel()
	for kind, f := range kinds(false) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for k := 1; ; k++ {
				w := newWorld()
				l := w.mustStart(t)
				req := w.sandbox("a")
				if _, err := l.Add(context.Background(), req); err != nil {
					t.Fatal(err)
				}
				l.drain()
				before := len(l.calls)
				l.faults = map[int]fault{before + k: f}
				err := l.Del(context.Background(), req)
				if len(l.calls) < before+k {
					if err != nil || k < 5 {
						t.Fatalf("after %d faults: %v", k, err)
					}
					return
				}
				if call := l.calls[before+k-1]; err == nil && !silent(call) && call != "Exists" {
					t.Fatalf("%s failed and DEL did not", call)
				}
				if err := w.check(); err != nil {
					t.Fatal(err)
				}
				for range 2 { // the second finds nothing
					if err := l.Del(context.Background(), req); err != nil {
						t.Fatal(err)
					}
				}
				l.drain()
				w.mustBeEmpty(t, fmt.Sprintf("after fault %d of DEL", k))
			}
		})
	}
}
