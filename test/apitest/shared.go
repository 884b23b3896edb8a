// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
)

// shared are the control planes of this test binary. Go gives TestMain no other way
// to hand something to the tests.
var shared struct {
	inMain                           bool
	current, oldest, withControllers sharedEnv
	alone                            Pool // of New

	mu    sync.Mutex
	pools []*Pool // that may have idle API servers
}

// sharedEnv is a control plane that is started when the first test needs it.
type sharedEnv struct {
	sync.Mutex

	env *Env
	err error
}

// Main runs the tests of a binary and ends what Start and its like started. Call it
// from TestMain.
func Main(m *testing.M) {
	shared.inMain = true
	m.Run() // the testing package exits with its code when TestMain returns
	for _, p := range shared.pools {
		if err := p.close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	for _, p := range []*sharedEnv{&shared.current, &shared.oldest, &shared.withControllers} {
		if p.env == nil {
			continue
		}
		if err := p.env.Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// MainParallel is Main with up to this many tests at a time, instead of one for each processor: for
// tests that wait for most of their time. go test -parallel has precedence.
func MainParallel(m *testing.M, tests int) {
	_ = flag.Set("test.parallel", strconv.Itoa(tests)) // any number is valid
	Main(m)
}

// Start returns the API server that all tests of this binary share.
func Start(tb testing.TB) *Env {
	tb.Helper()
	return shared.current.start(tb, Launch)
}

// StartOldest returns one of the oldest Kubernetes that Patchbay runs on, shared too.
func StartOldest(tb testing.TB) *Env {
	tb.Helper()
	return shared.oldest.start(tb, launchOldest)
}

// StartWithControllers returns one beside which Kubernetes' own controllers run: the
// garbage collector, and those of namespaces, service accounts and aggregated roles.
func StartWithControllers(tb testing.TB) *Env {
	tb.Helper()
	return shared.withControllers.start(tb, launchWithControllers)
}

func (p *sharedEnv) start(tb testing.TB, launch func(context.Context) (*Env, error)) *Env {
	tb.Helper()
	p.Lock()
	defer p.Unlock()
	if !shared.inMain {
		tb.Fatal("apitest.Start needs: func TestMain(m *testing.M) { apitest.Main(m) }")
	}
	if p.env == nil && p.err == nil {
		p.env, p.err = launch(context.Background()) // it outlives this test
	}
	if p.err != nil {
		tb.Fatal(p.err)
	}
	return p.env
}
