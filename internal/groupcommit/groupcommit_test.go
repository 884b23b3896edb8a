// SPDX-License-Identifier: Apache-2.0

package groupcommit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/internal/groupcommit"
)

var (
	errConflict = errors.New("conflict")
	errFailed   = errors.New("failed")
	errRefused  = errors.New("refused")
)

// policy retries without any luck: each random wait is half of its bound.
func policy() groupcommit.Policy {
	return groupcommit.Policy{
		IsConflict: func(err error) bool { return errors.Is(err, errConflict) },
		MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, MaxFailures: 3,
		Rand: func() float64 { return 0.5 },
	}
}

// writer commits integers: each attempt takes a while and has a scripted error.
type writer struct {
	queue *groupcommit.Queue[int]
	took  time.Duration

	mu sync.Mutex
	// errs are the errors of the attempts, in order; nil when none is left.
	errs []error
	// keep are the values that an attempt leaves waiting, each once.
	keep []int
	// batches are the values of each attempt; at is when each began.
	batches [][]int
	at      []time.Duration
	begin   time.Time
}

func newWriter(ctx context.Context, cfg groupcommit.Config, took time.Duration, errs ...error) *writer {
	w := &writer{took: took, errs: errs, begin: time.Now()}
	cfg.Commit = w.commit
	w.queue = groupcommit.New[int](ctx, cfg)
	return w
}

func (w *writer) commit(ctx context.Context) error {
	requests := w.queue.Pending()
	w.mu.Lock()
	var values []int
	for _, r := range requests {
		values = append(values, r.Value)
	}
	w.batches, w.at = append(w.batches, values), append(w.at, time.Since(w.begin))
	var err error
	if len(w.errs) > 0 {
		err, w.errs = w.errs[0], w.errs[1:]
	}
	w.mu.Unlock()
	groupcommit.Sleep(ctx, w.took)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range requests {
		if i := slices.Index(w.keep, r.Value); i >= 0 {
			w.keep = slices.Delete(w.keep, i, i+1)
			continue
		}
		if r.Value < 0 {
			r.Answer(errRefused)
		} else {
			r.Answer(nil)
		}
	}
	return nil
}

// do adds a value and waits; errNoAnswer is what it returns without an answer.
func (w *writer) do(ctx context.Context, value int) error {
	r := w.queue.Add(value)
	if !w.queue.Wait(ctx, r) {
		return errNoAnswer
	}
	return r.Err()
}

var errNoAnswer = errors.New("no answer")

func TestRequestsShareACommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t.Context(), groupcommit.Config{Policy: policy()}, time.Second)
		var wg sync.WaitGroup
		add := func(value int) { wg.Go(func() { _ = w.do(t.Context(), value) }) }
		add(1)
		synctest.Wait()
		for i := 2; i <= 4; i++ {
			add(i)
			synctest.Wait()
		}
		wg.Wait()
		if diff := cmp.Diff([][]int{{1}, {2, 3, 4}}, w.batches); diff != "" {
			t.Errorf("commits, -want +got:\n%s", diff)
		}
	})
}

func TestAttemptsAreRepeated(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	cases := map[string]struct {
		reason string
		change func(*groupcommit.Policy)
		took   time.Duration
		errs   []error
		want   error
		at     []time.Duration
	}{
		"Conflicts": {
			reason: "the bound of the wait doubles with each conflict in a row",
			errs:   []error{errConflict, errConflict, errConflict},
			at:     []time.Duration{0, 5 * ms, 15 * ms, 35 * ms},
		},
		"ManyConflicts": {
			reason: "conflicts never end the work, and the wait is bounded",
			errs:   slices.Repeat([]error{errConflict}, 6),
			at:     []time.Duration{0, 5 * ms, 15 * ms, 35 * ms, 75 * ms, 125 * ms, 175 * ms},
		},
		"SlowAttempts": {
			reason: "writers that met spread out over as long as their attempts take",
			change: func(p *groupcommit.Policy) { p.Spread, p.MaxBackoff = 4, time.Second },
			took:   20 * ms, errs: []error{errConflict},
			at: []time.Duration{0, 60 * ms},
		},
		"ConstantRetries": {
			reason: "the bound doubles only if spreading out does not help",
			change: func(p *groupcommit.Policy) { p.ConstantRetries = 2 },
			errs:   []error{errConflict, errConflict, errConflict, errConflict},
			at:     []time.Duration{0, 5 * ms, 10 * ms, 15 * ms, 25 * ms},
		},
		"Failures": {
			reason: "a failure may be over soon, too",
			errs:   []error{errFailed, errFailed},
			at:     []time.Duration{0, 40 * ms, 90 * ms},
		},
		"TooManyFailures": {
			reason: "callers get the error after some failures in a row",
			errs:   []error{errFailed, errFailed, errFailed},
			want:   errFailed, at: []time.Duration{0, 40 * ms, 90 * ms},
		},
		"FailuresNotInARow": {
			reason: "a conflict is an answer of the store, but no success",
			errs:   []error{errFailed, errConflict, errFailed, errFailed},
			want:   errFailed, at: []time.Duration{0, 40 * ms, 45 * ms, 95 * ms},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := policy()
				if tc.change != nil {
					tc.change(&p)
				}
				w := newWriter(t.Context(), groupcommit.Config{Policy: p}, tc.took, tc.errs...)
				if err := w.do(t.Context(), 1); !errors.Is(err, tc.want) {
					t.Errorf("%s: got error %v, want %v", tc.reason, err, tc.want)
				}
				if diff := cmp.Diff(tc.at, w.at); diff != "" {
					t.Errorf("%s: attempts began, -want +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestJitterIsFull(t *testing.T) {
	t.Parallel()
	p := groupcommit.Policy{} // with the random numbers of production
	var least, most time.Duration = time.Hour, 0
	for range 10_000 {
		d := p.Jitter(time.Second, time.Minute, 2)
		least, most = min(least, d), max(most, d)
	}
	if least > 100*time.Millisecond || most < 3900*time.Millisecond || most >= 4*time.Second {
		t.Errorf("waits from %v to %v, want all from 0 to 4s", least, most)
	}
	if d := p.Jitter(time.Second, time.Minute, 1000); d >= time.Minute {
		t.Errorf("waits %v after very many tries, want less than a minute", d)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t.Context(), groupcommit.Config{Policy: policy()}, time.Millisecond)
		w.keep = []int{3}
		got := map[int]error{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, v := range []int{1, -2, 3} {
			wg.Go(func() {
				err := w.do(t.Context(), v)
				mu.Lock()
				defer mu.Unlock()
				got[v] = err
			})
		}
		wg.Wait()
		if got[1] != nil || !errors.Is(got[-2], errRefused) || got[3] != nil {
			t.Errorf("answers %v, want an error for -2 alone", got)
		}
		tries := 0
		for _, batch := range w.batches {
			if slices.Contains(batch, 3) {
				tries++
			}
		}
		if tries != 2 {
			t.Errorf("commits %v, want 3 in two: the first one did not answer it", w.batches)
		}
	})
}

func TestFailureAnswersAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var owed []bool
		w := newWriter(t.Context(), groupcommit.Config{
			Policy:       policy(),
			FailureError: func(err error) error { return errors.Join(errRefused, err) },
			Failed:       func(due bool) { owed = append(owed, due) },
		}, time.Second, slices.Repeat([]error{errFailed}, 6)...)
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				if err := w.do(t.Context(), i); !errors.Is(err, errRefused) || !errors.Is(err, errFailed) {
					t.Errorf("got error %v, want the one of FailureError", err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		w.queue.Trigger() // a commit that no caller waits for fails as well
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]bool{false, true}, owed); diff != "" {
			t.Errorf("commits that are still due, -want +got:\n%s", diff)
		}
		if err := w.do(t.Context(), 9); err != nil {
			t.Errorf("after the failures: got error %v", err)
		}
	})
}

func TestTrigger(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		errs   []error
		during bool
		want   int
	}{
		"Once":         {"one commit serves it", nil, false, 1},
		"DuringCommit": {"a commit that began before does not serve it", nil, true, 2},
		"Repeated":     {"a commit that failed has not served it", []error{errConflict, errFailed}, false, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				idle := 0
				w := newWriter(t.Context(), groupcommit.Config{Policy: policy(), Idle: func() { idle++ }}, time.Second, tc.errs...)
				w.queue.Trigger()
				if tc.during {
					synctest.Wait()
					w.queue.Trigger()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(w.batches) != tc.want || idle != 1 {
					t.Errorf("%s: %d commits and idle %d times, want %d and once", tc.reason, len(w.batches), idle, tc.want)
				}
			})
		})
	}
}

func TestWithdrawal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t.Context(), groupcommit.Config{Policy: policy()}, time.Second)
		first := w.queue.Add(1)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		second := w.queue.Add(2)
		if w.queue.Wait(ctx, second) || second.Accept() {
			t.Error("a request whose caller gave up has an answer")
		}
		if first.Accept(); w.queue.Wait(ctx, first) != true || first.Err() != nil {
			t.Error("a caller gave up though its request was accepted")
		}
		if err := w.do(t.Context(), 3); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([][]int{{1}, {3}}, w.batches); diff != "" {
			t.Errorf("commits, -want +got:\n%s", diff)
		}
	})
}

func TestEndOfTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var writers sync.WaitGroup
		w := newWriter(ctx, groupcommit.Config{Policy: policy(), Go: writers.Go}, time.Minute)
		for i := range 3 {
			go func() { _ = w.do(t.Context(), i) }()
		}
		synctest.Wait()
		cancel()
		writers.Wait() // no writer is left
		if err := w.do(t.Context(), 4); !errors.Is(err, errNoAnswer) {
			t.Errorf("after the end: got error %v, want no answer", err)
		}
		w.queue.Trigger()
		synctest.Wait()
		if len(w.batches) != 1 {
			t.Errorf("%d commits, want one", len(w.batches))
		}
	})
}

// Under the race detector: many callers, some of whom give up, and a store with faults.
func TestConcurrentCallers(t *testing.T) {
	t.Parallel()
	var attempts, served atomic.Int64
	var queue *groupcommit.Queue[*atomic.Int64]
	p := policy()
	p.MinBackoff, p.MaxBackoff = time.Microsecond, 100*time.Microsecond
	queue = groupcommit.New[*atomic.Int64](t.Context(), groupcommit.Config{Policy: p, Commit: func(context.Context) error {
		requests := queue.Pending()
		switch attempts.Add(1) % 5 {
		case 0:
			return errConflict
		case 1:
			return errFailed
		}
		for _, r := range requests {
			if r.Accept() {
				r.Value.Add(1)
				served.Add(1)
				r.Answer(nil)
			}
		}
		return nil
	}})
	var wg sync.WaitGroup
	var answered atomic.Int64
	for i := range 200 {
		wg.Go(func() {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if i%4 == 0 {
				ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*time.Microsecond)
			}
			defer cancel()
			var value atomic.Int64
			r := queue.Add(&value)
			ok := queue.Wait(ctx, r)
			if ok && r.Err() == nil {
				answered.Add(1)
			}
			if ok == (value.Load() != 1) {
				t.Errorf("answered %v, and served %d times", ok, value.Load())
			}
			if i%7 == 0 {
				queue.Trigger()
			}
		})
	}
	wg.Wait()
	if answered.Load() != served.Load() {
		t.Errorf("%d callers got an answer, %d were served", answered.Load(), served.Load())
	}
}
