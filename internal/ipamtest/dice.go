// SPDX-License-Identifier: Apache-2.0

package ipamtest

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Dice draws faults for Faulty.Next: each kind but Fine for percent of the
// requests, with delays below most. Equal seeds draw equal faults.
func Dice(seed uint64, percent int, most time.Duration) func(Op) Fault {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, seed))
	return func(Op) Fault {
		mu.Lock()
		defer mu.Unlock()
		f := Fault{Delay: time.Duration(r.Int64N(int64(most) + 1))}
		if n := r.IntN(100); n < int(Late)*percent {
			f.Kind = Kind(n/percent) + Conflict
		}
		return f
	}
}
