// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// A sandbox belongs to one Pod. An ADD of another Pod with its ID fails and changes nothing.
func TestAddOfAnotherPodToSandbox(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	d := env.mustStart(t)
	req := env.sandbox("a")
	if _, err := d.Add(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	before := env.remaining()
	for field, change := range map[string]func(*attach.Request){
		"namespace":     func(r *attach.Request) { r.Netns = env.sandbox("b").Netns },
		"Pod":           func(r *attach.Request) { r.PodName = "db" },
		"Pod namespace": func(r *attach.Request) { r.PodNamespace = "other" },
	} {
		other := req
		change(&other)
		if _, err := d.Add(context.Background(), other); !errors.Is(err, attach.ErrInvalidRequest) {
			t.Errorf("ADD with another %s: got %v, want ErrInvalidRequest", field, err)
		}
	}
	if diff := cmp.Diff(before, env.remaining()); diff != "" {
		t.Errorf("state: -before +after:\n%s", diff)
	}
}

// An ADD after a DEL waits until the Publisher has released the earlier record.
func TestAddAfterDel(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	d := env.mustStart(t)
	if _, err := d.Add(context.Background(), env.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	if err := d.Del(context.Background(), request("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Add(context.Background(), request("a")); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("ADD before the release: got %v, want ErrTryAgain", err)
	}
	d.runPublisher()
	if _, err := d.Add(context.Background(), request("a")); err != nil {
		t.Errorf("ADD after the release: %v", err)
	}
}

// A failed DEL has detached some interfaces. A repeated ADD must not return them.
func TestAddAfterHalfDel(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	d := env.mustStart(t)
	if _, err := d.Add(context.Background(), env.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	d.runPublisher()
	d.calls, d.faults = nil, map[int]fault{5: {}} // Get, Exists, Detach net2, eth1, eth0
	if err := d.Del(context.Background(), request("a")); !errors.Is(err, errInjected) {
		t.Fatalf("DEL: %v, want the injected fault; calls %q", err, d.calls)
	}
	if _, err := d.Add(context.Background(), request("a")); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("ADD: %v, want ErrTryAgain", err)
	}
	d.runPublisher()
	env.mustBeEmpty(t, "after the ADD has completed the DEL")
}

// A static Pod has one UID in the API server, that of its mirror Pod, and another one in kubelet.
func TestAddOfStaticPodIsRepeated(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	d := env.mustStart(t)
	if _, err := d.Add(context.Background(), env.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	req := request("a")
	req.PodUID = "hash-of-the-manifest"
	if _, err := d.Add(context.Background(), req); err != nil {
		t.Errorf("repeated ADD: %v", err)
	}
}

// An invalid result fails the ADD, which is rolled back.
func TestAddWithInvalidResult(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	d := env.mustStart(t)
	d.invalidResult = true
	if _, err := d.Add(context.Background(), env.sandbox("a")); err == nil {
		t.Error("ADD with an invalid result: got no error, want one")
	}
	env.mustBeEmpty(t, "after an invalid result")
}
