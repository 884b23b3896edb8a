// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// A sandbox is one Pod's: another ADD with its ID is a mistake, and harmless.
func TestAddOfAnotherPodToSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l := w.mustStart(t)
	req := w.sandbox("a")
	if _, err := l.Add(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	before := w.left()
	for what, change := range map[string]func(*attach.Request){
		"namespace":     func(r *attach.Request) { r.Netns = w.sandbox("b").Netns },
		"Pod":           func(r *attach.Request) { r.PodName = "db" },
		"Pod namespace": func(r *attach.Request) { r.PodNamespace = "other" },
	} {
		other := req
		change(&other)
		if _, err := l.Add(context.Background(), other); !errors.Is(err, attach.ErrInvalidRequest) {
			t.Errorf("ADD with another %s: %v, want ErrInvalidRequest", what, err)
		}
	}
	if diff := cmp.Diff(before, w.left()); diff != "" {
		t.Errorf("it changed something: -before +after:\n%s", diff)
	}
}

// Its former record is still being given back.
func TestAddAfterDel(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l := w.mustStart(t)
	if _, err := l.Add(context.Background(), w.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	if err := l.Del(context.Background(), request("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Add(context.Background(), request("a")); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("ADD while the former is given back: %v, want ErrTryAgain", err)
	}
	l.drain()
	if _, err := l.Add(context.Background(), request("a")); err != nil {
		t.Errorf("ADD afterwards: %v", err)
	}
}

// A DEL that stopped half-way has taken interfaces: a repeated ADD must not
// answer with them.
func TestAddAfterHalfDel(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l := w.mustStart(t)
	if _, err := l.Add(context.Background(), w.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	l.drain()
	l.calls, l.faults = nil, map[int]fault{5: {}} // Get, Exists, Detach net2, eth1, eth0
	if err := l.Del(context.Background(), request("a")); !errors.Is(err, errInjected) {
		t.Fatalf("DEL: %v, want the injected fault; calls %q", err, l.calls)
	}
	if _, err := l.Add(context.Background(), request("a")); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("ADD: %v, want ErrTryAgain", err)
	}
	l.drain()
	w.mustBeEmpty(t, "after ADD has ended the DEL")
}

// A static Pod's UID at the API server is its mirror's, not kubelet's.
func TestAddOfStaticPodIsRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l := w.mustStart(t)
	if _, err := l.Add(context.Background(), w.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	req := request("a")
	req.PodUID = "hash-of-the-manifest"
	if _, err := l.Add(context.Background(), req); err != nil {
		t.Errorf("repeated ADD: %v", err)
	}
}

// A result that cannot be handed on fails the ADD while it can be undone.
func TestAddWithBrokenResult(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l := w.mustStart(t)
	l.broken = true
	if _, err := l.Add(context.Background(), w.sandbox("a")); err == nil {
		t.Error("ADD answered with a result that is none")
	}
	w.mustBeEmpty(t, "after a broken result")
}
