// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// faultKinds returns the ways in which one call can fail.
func faultKinds(kill bool) map[string]fault {
	return map[string]fault{
		"BeforeEffect": {kill: kill},
		"AfterEffect":  {kill: kill, after: true},
	}
}

// When any call of an ADD fails, the ADD fails and leaves nothing behind, also without a DEL.
func TestFailedAddLeavesNothing(t *testing.T) {
	t.Parallel()
	for kind, f := range faultKinds(false) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for k := 1; ; k++ {
				env := newEnvironment()
				d, err := env.start(map[int]fault{k: f})
				if err != nil {
					continue // the fault hit Resume
				}
				req := env.sandbox("a")
				_, err = d.Add(context.Background(), req)
				if len(d.calls) < k {
					if err != nil || k < 12 {
						t.Fatalf("after %d faults: got error %v and calls %q", k, err, d.calls)
					}
					return // all calls have failed once
				}
				if call := d.calls[k-1]; err == nil && !returnsNoError(call) && call != "Exists" {
					t.Fatalf("%s failed: got no error of ADD, want one", call)
				}
				if err != nil {
					if !errors.Is(err, errInjected) {
						t.Fatalf("%s failed: got error %v of ADD, want the injected one", d.calls[k-1], err)
					}
					env.mustBeEmpty(t, "after "+d.calls[k-1])
				}
			}
		})
	}
}

// When the roll-back fails as well, the record stays for DEL, and DEL removes all.
func TestDelAfterFailedRollBack(t *testing.T) {
	t.Parallel()
	for kind, f := range faultKinds(false) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pairs := 0
			for first := 2; first < 40; first++ {
				for second := first + 1; second < 40; second++ {
					env := newEnvironment()
					d, err := env.start(map[int]fault{first: f, second: f})
					if err != nil {
						t.Fatal(err)
					}
					req := env.sandbox("a")
					_, err = d.Add(context.Background(), req)
					if len(d.calls) < second {
						break
					}
					pairs++
					d.faults = nil
					if err := env.check(); err != nil {
						t.Fatalf("faults %d and %d: %v", first, second, err)
					}
					if err := d.Del(context.Background(), req); err != nil {
						t.Fatalf("faults %d and %d: DEL: %v", first, second, err)
					}
					d.runPublisher()
					env.mustBeEmpty(t, fmt.Sprintf("after faults %d and %d (%v) in %q", first, second, err, d.calls))
				}
			}
			if pairs < 50 {
				t.Fatalf("tried %d pairs of faults, want more", pairs)
			}
		})
	}
}

// When any call of a DEL fails, the next DEL removes the rest.
func TestDelIsRepeated(t *testing.T) {
	t.Parallel()
	for kind, f := range faultKinds(false) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for k := 1; ; k++ {
				env := newEnvironment()
				d := env.mustStart(t)
				req := env.sandbox("a")
				if _, err := d.Add(context.Background(), req); err != nil {
					t.Fatal(err)
				}
				d.runPublisher()
				before := len(d.calls)
				d.faults = map[int]fault{before + k: f}
				err := d.Del(context.Background(), req)
				if len(d.calls) < before+k {
					if err != nil || k < 5 {
						t.Fatalf("after %d faults: %v", k, err)
					}
					return
				}
				if call := d.calls[before+k-1]; err == nil && !returnsNoError(call) && call != "Exists" {
					t.Fatalf("%s failed: got no error of DEL, want one", call)
				}
				if err := env.check(); err != nil {
					t.Fatal(err)
				}
				for range 2 { // the second one has nothing to do
					if err := d.Del(context.Background(), req); err != nil {
						t.Fatal(err)
					}
				}
				d.runPublisher()
				env.mustBeEmpty(t, fmt.Sprintf("after fault %d of DEL", k))
			}
		})
	}
}
