// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// continuations returns what may happen after a daemon was killed. Each ends without the sandbox.
func continuations() map[string]func(*environment) error {
	return map[string]func(*environment) error{
		"DEL": func(env *environment) error { return env.nextDaemon(deleteSandbox) },
		"DELWithoutNamespace": func(env *environment) error {
			env.end("a")
			return env.nextDaemon(deleteSandbox)
		},
		"ADDAgain": func(env *environment) error {
			return env.nextDaemon(func(d *testDaemon) error {
				if _, err := d.Add(context.Background(), env.sandbox("a")); err != nil {
					return fmt.Errorf("repeated ADD: %w", err)
				}
				d.runPublisher()
				if len(env.published()) != 3 {
					return fmt.Errorf("DanmEps after repeated ADD: %q", env.published())
				}
				return deleteSandbox(d)
			})
		},
		"PowerCut": func(env *environment) error {
			env.powerCut()
			return env.nextDaemon(func(*testDaemon) error { return nil })
		},
	}
}

// nextDaemon starts a daemon, calls work, and runs the Publisher before and after.
func (env *environment) nextDaemon(work func(*testDaemon) error) error {
	d, err := env.start(nil)
	if err != nil {
		return err
	}
	d.runPublisher()
	defer d.runPublisher()
	return work(d)
}

// deleteSandbox sends a DEL.
func deleteSandbox(d *testDaemon) error { return d.Del(context.Background(), request("a")) }

// After a kill at any call of ADD, or during the creation of DanmEps, the next daemon leaves nothing
// behind.
func TestKilledInAdd(t *testing.T) {
	t.Parallel()
	killAtEachCall(t, newEnvironment, addSandbox)
}

// addSandbox sends an ADD.
func addSandbox(env *environment, d *testDaemon) bool {
	_, err := d.Add(context.Background(), env.sandbox("a"))
	d.runPublisher()
	return err == nil
}

// The same applies to a kill during DEL, and during the release of DanmEps and addresses.
func TestKilledInDel(t *testing.T) {
	t.Parallel()
	killAtEachCall(t, newEnvironment, addAndDelete)
}

// addAndDelete sends an ADD without faults, and a DEL with the daemon's.
func addAndDelete(env *environment, d *testDaemon) bool {
	faults := d.faults
	d.faults = nil
	_, err := d.Add(context.Background(), env.sandbox("a"))
	d.runPublisher()
	d.calls, d.faults = nil, faults
	if err == nil {
		err = d.Del(context.Background(), request("a"))
	}
	d.runPublisher()
	return err == nil
}

// The same applies to Pods with devices: each device is as it was before, and free.
func TestKilledWithDevices(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]func(*environment, *testDaemon) bool{"Add": addSandbox, "Del": addAndDelete} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killAtEachCall(t, newDeviceEnvironment, work)
		})
	}
}

// killAtEachCall kills a daemon at each call of work in turn, and then runs each continuation.
func killAtEachCall(t *testing.T, newEnv func() *environment, work func(*environment, *testDaemon) bool) {
	t.Helper()
	for name, resume := range continuations() {
		for kind, f := range faultKinds(true) {
			t.Run(name+kind, func(t *testing.T) {
				t.Parallel()
				for k := 1; ; k++ {
					env := newEnv()
					d := env.mustStart(t)
					d.calls, d.faults = nil, map[int]fault{k: f}
					done := work(env, d)
					if len(d.calls) < k {
						if !done || k < 8 {
							t.Fatalf("after %d kills: calls %q", k-1, d.calls)
						}
						return
					}
					if err := env.check(); err != nil {
						t.Fatalf("killed in %s: %v", d.calls[k-1], err)
					}
					if err := resume(env); err != nil && !released(env, d) {
						t.Fatalf("killed in %s: %v", d.calls[k-1], err)
					}
					env.mustBeEmpty(t, "after a kill in "+d.calls[k-1])
				}
			})
		}
	}
}

// released reports whether the sandbox was released before the kill. A repeated ADD then fails with
// ErrTryAgain, or attaches the sandbox again.
func released(env *environment, d *testDaemon) bool {
	return slices.Contains(d.calls, "Journal.Put released") && len(env.records) == 0
}

// Resume detaches what is gone, and passes unfinished records to the Publisher.
func TestResume(t *testing.T) {
	t.Parallel()
	rec := func(state attach.State, boot, uid string) *attach.Record {
		return &attach.Record{
			ContainerID: "a", IfName: "eth0", BootID: boot, Netns: request("a").Netns, State: state,
			Interfaces: []attach.Interface{{Name: "eth0", EndpointName: "e", EndpointUID: uid}},
		}
	}
	cases := map[string]struct {
		reason string
		rec    *attach.Record
		gone   bool
		want   []string
	}{
		"Unpublished": {
			reason: "The DanmEp may be missing.", rec: rec(attach.Attached, "boot-0", ""),
			want: []string{"Publish"},
		},
		"Published": {reason: "The record is complete.", rec: rec(attach.Attached, "boot-0", "u")},
		"PublishedWithoutNamespace": {
			reason: "The runtime sends a DEL, or the DEL is pending.", rec: rec(attach.Attached, "boot-0", "u"), gone: true,
		},
		"Released":  {reason: "The addresses are not released yet.", rec: rec(attach.Released, "boot-0", "u"), want: []string{"Release"}},
		"Attaching": {reason: "The runtime repeats the ADD or sends a DEL.", rec: rec(attach.Attaching, "boot-0", "")},
		"AttachingWithoutNamespace": {
			reason: "The runtime does not repeat the ADD.", rec: rec(attach.Attaching, "boot-0", ""), gone: true,
			want: []string{"Detach eth0", "Journal.Delete", "Discard"},
		},
		"Detaching": {
			reason: "A DEL has begun.", rec: rec(attach.Detaching, "boot-0", "u"),
			want: []string{"Detach eth0", "Journal.Put released", "Release"},
		},
		"Rebooted": {
			reason: "The network namespace is gone after a reboot.", rec: rec(attach.Attached, "boot-x", "u"),
			want: []string{"Detach eth0", "Journal.Put released", "Release"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newEnvironment()
			env.put(tc.rec)
			if !tc.gone {
				env.sandbox("a")
			}
			d := env.mustStart(t)
			got := slices.DeleteFunc(d.callsWithPrefix(""), func(c string) bool { return c == "Journal.List" || c == "Journal.Get" || c == "Exists" })
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// staleJournal is a journal whose List returns old records.
type staleJournal struct {
	attach.Journal
	records []*attach.Record
}

// List implements attach.Journal.
func (j staleJournal) List() ([]*attach.Record, error) { return j.records, nil }

// A DEL during Resume releases a listed record. Resume must not use the old copy, whose addresses may
// belong to another Pod.
func TestResumeReadsAgain(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	d := env.mustStart(t)
	if _, err := d.Add(context.Background(), env.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	records, err := journal{d}.List()
	if err != nil || len(records) != 1 {
		t.Fatalf("journal: %d records, %v", len(records), err)
	}
	d.runPublisher()
	env.powerCut()
	if err := env.nextDaemon(func(*testDaemon) error { return nil }); err != nil {
		t.Fatal(err)
	}
	env.mustBeEmpty(t, "after the DEL")
	d = env.mustStart(t)
	config := d.config
	config.Journal = staleJournal{journal{d}, records}
	if err := attach.New(config).Resume(context.Background()); err != nil {
		t.Fatal(err)
	}
	env.mustBeEmpty(t, "after Resume with the old record")
}
