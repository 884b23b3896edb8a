// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Mishap is what becomes of a request on its way through a Proxy.
type Mishap struct {
	// Fault is the kind; a client sees a broken connection, as after a crash.
	Fault Fault
	// Delay is how late the request is; of one that arrives twice, its second time.
	Delay time.Duration
}

// Dice draws mishaps: each kind for percent of the writes, reads are only lost and
// delayed; delays are below most. Equal seeds draw equal mishaps.
func Dice(seed uint64, percent int, most time.Duration) func(*http.Request) Mishap {
	kinds := []Fault{LoseRequest, LoseReply, Late, Twice, LateTwice}
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, seed))
	return func(req *http.Request) Mishap {
		mu.Lock()
		defer mu.Unlock()
		m := Mishap{Delay: time.Duration(r.Int64N(int64(most) + 1))}
		if n := r.IntN(100); n < len(kinds)*percent {
			m.Fault = kinds[n/percent]
		}
		if req.Method == http.MethodGet && m.Fault > LoseReply {
			m.Fault = Pass
		}
		if m.Fault == Pass && r.IntN(100) >= percent {
			m.Delay = 0 // most requests meet nothing at all
		}
		return m
	}
}

// late are requests that reach the API server after their callers gave up.
type late struct {
	mu   sync.Mutex
	done []chan struct{} // each closed when its request is through
}

// after makes a request after a while.
func (l *late) after(delay time.Duration, request func()) {
	done := make(chan struct{})
	l.mu.Lock()
	l.done = append(l.done, done)
	l.mu.Unlock()
	go func() {
		defer close(done)
		time.Sleep(delay)
		request()
	}()
}

// wait returns when none is left. More may come meanwhile, which a WaitGroup would not
// allow.
func (l *late) wait() {
	for {
		l.mu.Lock()
		done := l.done
		l.done = nil
		l.mu.Unlock()
		if len(done) == 0 {
			return
		}
		for _, d := range done {
			<-d
		}
	}
}
