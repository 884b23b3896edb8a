// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress tells somebody who waits what is going on, with the time since the begin.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	begin time.Time
}

func newProgress(out io.Writer) *progress {
	if out == nil {
		out = io.Discard
	}
	return &progress{out: out, begin: time.Now()}
}

// printf writes one line.
func (p *progress) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "[%5.1fs] %s\n", time.Since(p.begin).Seconds(), fmt.Sprintf(format, args...))
}

// step runs fn between two lines.
func (p *progress) step(what string, fn func() error) error {
	p.printf("%s …", what)
	begin := time.Now()
	if err := fn(); err != nil {
		p.printf("%s: failed", what)
		return fmt.Errorf("%s: %w", what, err)
	}
	p.printf("%s: done in %.1fs", what, time.Since(begin).Seconds())
	return nil
}
