// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"testing"
)

// When an ADD and its roll-back fail, another sandbox may be attached before the
// DEL: what the DEL gives back must not be the other one's by then.
func TestDelAfterFailedRollBackFreesNobodyElse(t *testing.T) {
	t.Parallel()
	pairs := 0
	for first := 2; first < 40; first++ {
		for second := first + 1; second < 40; second++ {
			w := newWorld()
			l, err := w.start(map[int]fault{first: {}, second: {}})
			if err != nil {
				t.Fatal(err)
			}
			req := w.sandbox("a")
			if _, err = l.Add(context.Background(), req); err == nil || len(l.calls) < second {
				break
			}
			pairs++
			failed := []string{l.calls[first-1], l.calls[second-1]}
			l.faults = nil
			if _, err := l.Add(context.Background(), w.sandbox("b")); err != nil {
				t.Fatalf("%q failed, then ADD of another sandbox: %v", failed, err)
			}
			if err := l.Del(context.Background(), req); err != nil {
				t.Fatalf("%q failed, then DEL: %v", failed, err)
			}
			if err := w.check(); err != nil {
				t.Fatalf("%q failed, then DEL: %v", failed, err)
			}
		}
	}
	if pairs < 20 {
		t.Fatalf("only %d pairs of faults were tried", pairs)
	}
}
