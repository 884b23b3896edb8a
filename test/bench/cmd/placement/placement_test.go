// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"
)

func TestRunRefusesWrongFlags(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		args   []string
	}{
		"Unknown":    {"There is no such flag.", []string{"-no-such-flag"}},
		"OneCluster": {"The idle agent's cluster is not one of the others.", []string{"-clusters=1"}},
		"NoOthers":   {"Works are the idle agent's, and others.", []string{"-works=100"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := run(t.Context(), tc.args, io.Discard); err == nil {
				t.Errorf("%s\nrun: got no error", tc.reason)
			}
		})
	}
}

func TestAwait(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	first := time.Now()
	for name, tc := range map[string]struct {
		reason string
		ctx    context.Context
		seen   []arrival
		want   []time.Time
		err    error
	}{
		"All":   {"The first time of each counts, of this value.", t.Context(), []arrival{{1, "old", first}, {1, "new", first}, {1, "new", first.Add(9)}, {0, "new", first.Add(1)}}, []time.Time{first.Add(1), first}, nil},
		"Watch": {"A watch that has ended sees nothing any more.", t.Context(), []arrival{{cluster: 1}}, nil, errWatchEnded},
		"Ended": {"Nobody waits for ever.", ended, nil, nil, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &arrivals{watches: make([]watch.Interface, 2), seen: make(chan arrival, len(tc.seen))}
			for _, s := range tc.seen {
				a.seen <- s
			}
			got, err := a.await(tc.ctx, "new")
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s\nawait: got %v, want %v", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nawait: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
