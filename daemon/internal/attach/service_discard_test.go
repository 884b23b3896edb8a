// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"testing"
)

// When an ADD and its roll-back fail, another sandbox may be attached before the DEL. The DEL must not
// free the addresses of the other one.
func TestDelAfterFailedRollBackFreesNobodyElse(t *testing.T) {
	t.Parallel()
	pairs := 0
	for first := 2; first < 40; first++ {
		for second := first + 1; second < 40; second++ {
			env := newEnvironment()
			d, err := env.start(map[int]fault{first: {}, second: {}})
			if err != nil {
				t.Fatal(err)
			}
			req := env.sandbox("a")
			if _, err = d.Add(context.Background(), req); err == nil || len(d.calls) < second {
				break
			}
			pairs++
			failed := []string{d.calls[first-1], d.calls[second-1]}
			d.faults = nil
			if _, err := d.Add(context.Background(), env.sandbox("b")); err != nil {
				t.Fatalf("%q failed, then ADD of another sandbox: %v", failed, err)
			}
			if err := d.Del(context.Background(), req); err != nil {
				t.Fatalf("%q failed, then DEL: %v", failed, err)
			}
			if err := env.check(); err != nil {
				t.Fatalf("%q failed, then DEL: %v", failed, err)
			}
		}
	}
	if pairs < 20 {
		t.Fatalf("tried %d pairs of faults, want more", pairs)
	}
}
