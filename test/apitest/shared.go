// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared is the one control plane of this test binary. Go gives TestMain no other way
// to hand something to the tests.
var shared struct {
	sync.Mutex
	inMain bool
	env    *Env
	err    error
}

// Main runs the tests of a binary and ends what Start started. Call it from TestMain.
func Main(m *testing.M) {
	shared.inMain = true
	m.Run() // the testing package exits with its code when TestMain returns
	if shared.env == nil {
		return
	}
	if err := shared.env.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// Start returns the API server that all tests of this binary share.
func Start(tb testing.TB) *Env {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.inMain {
		tb.Fatal("apitest.Start needs: func TestMain(m *testing.M) { apitest.Main(m) }")
	}
	if shared.env == nil && shared.err == nil {
		shared.env, shared.err = Launch(context.Background()) // it outlives this test
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.env
}
