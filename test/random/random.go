// SPDX-License-Identifier: Apache-2.0

// Package random gives random tests their numbers: the same in every `make test`, others in
// `make soak`.
package random

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
)

// Variable names the environment variable that has the seed, a decimal number.
const Variable = "PATCHBAY_SEED"

// Seed returns the seed of Variable, or a random one. A test that fails prints it.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	seed, err := strconv.ParseUint(os.Getenv(Variable), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("random seed: %s=%d", Variable, seed)
		}
	})
	return seed
}

// IntN returns a function that returns random numbers from 0 to n-1, drawn from Seed. It may
// be called concurrently; the order of calls is then not the seed's.
func IntN(tb testing.TB) func(n int) int {
	tb.Helper()
	var mu sync.Mutex
	seed := Seed(tb)
	r := rand.New(rand.NewPCG(seed, seed))
	return func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
}
