// SPDX-License-Identifier: Apache-2.0

package delegate_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/delegate"
)

// onAdd is a script that does something on ADD alone.
func onAdd(script string) string { return "[ $CNI_COMMAND = DEL ] && exit 0\n" + script }

// commands are the runs without their arguments.
func (b *bench) commands() []string {
	b.t.Helper()
	var all []string
	for _, run := range b.runs() {
		words := strings.Fields(run)
		all = append(all, words[0]+" "+words[1])
	}
	return all
}

// Whatever goes wrong in ADD: the error says plugin and cause, and DEL has run.
func TestAttachFails(t *testing.T) {
	t.Parallel()
	result := printed("1.0.0")
	cases := map[string]struct {
		reason string
		script string
		says   []string
		again  bool
	}{
		"OwnError": {
			reason: "the plugin's message is the cause", script: `echo '{"cniVersion":"1.0.0","code":999,"msg":"no room","details":"pool a"}'; exit 1`,
			says: []string{"no room", "pool a"},
		},
		"TryAgain": {
			reason: "CNI error 11 stays one", script: `echo '{"cniVersion":"1.0.0","code":11,"msg":"busy"}'; exit 1`, says: []string{"busy"}, again: true,
		},
		"Stderr":       {reason: "a plugin that just dies", script: `echo "no such kernel module" >&2; exit 3`, says: []string{"exit status 3", "no such kernel module"}},
		"Silent":       {reason: "not even that", script: "exit 4", says: []string{"exit status 4"}},
		"NoResult":     {reason: "CNI wants one", script: "exit 0", says: []string{"decode its result"}},
		"NotJSON":      {reason: "CNI wants JSON", script: "echo fine", says: []string{"decode its result"}},
		"NullInList":   {reason: "must not end the daemon", script: `echo '{"cniVersion":"0.3.1","interfaces":[null]}'`, says: []string{"interfaces[0] is null"}},
		"NullIP":       {reason: "must not end the daemon", script: `echo '{"cniVersion":"0.3.1","ips":[null]}'`, says: []string{"ips[0] is null"}},
		"NullRoute":    {reason: "must not end the daemon", script: `echo '{"cniVersion":"0.3.1","routes":[null]}'`, says: []string{"routes[0] is null"}},
		"Index":        {reason: "runtimes take it as it is", script: `echo '{"cniVersion":"1.0.0","ips":[{"interface":3,"address":"10.0.0.1/8"}]}'`, says: []string{"interface 3 of 0"}},
		"NoDst":        {reason: "DEL could not read it from the journal", script: `echo '{"cniVersion":"1.0.0","routes":[{}]}'`, says: []string{"encode the result"}},
		"Version":      {reason: "nobody knows what it means", script: `echo '{"cniVersion":"9.9.9"}'`, says: []string{"9.9.9"}},
		"TooMuch":      {reason: "the journal is no dump", script: "head -c 300000 /dev/zero", says: []string{"262144"}},
		"LongMessage":  {reason: "Events are short", script: "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", says: []string{"exit status 1"}},
		"AfterSuccess": {reason: "a later plugin's failure undoes the first", script: "echo '" + result + "'", says: []string{"portmap", "refused"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, delegate.Options{})
			b.config("flat.conflist", list)
			b.plugin("bridge", onAdd(tc.script))
			next := tc.script
			if name == "AfterSuccess" {
				next = `echo '{"cniVersion":"1.0.0","code":100,"msg":"refused"}'; exit 1`
			}
			b.plugin("portmap", onAdd(next))
			rec, ifc := b.sandbox("bridge")
			if err := b.prepare(ifc); err != nil {
				t.Fatal(err)
			}
			err := b.backend.Attach(context.Background(), rec, ifc)
			if err == nil {
				t.Fatalf("%s: succeeded", tc.reason)
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q does not say %q", tc.reason, err, part)
				}
			}
			if len(err.Error()) > 5000 {
				t.Errorf("%s: a message of %d bytes", tc.reason, len(err.Error()))
			}
			if errors.Is(err, attach.ErrTryAgain) != tc.again {
				t.Errorf("%s: try again is %t, want %t: %v", tc.reason, !tc.again, tc.again, err)
			}
			if got := b.commands(); !slices.Contains(got, "DEL bridge") || !slices.Contains(got, "DEL portmap") {
				t.Errorf("%s: DEL is missing in %q", tc.reason, got)
			}
			if ifc.Result != nil {
				t.Errorf("%s: a result is left: %s", tc.reason, ifc.Result)
			}
		})
	}
}

func TestPluginMissing(t *testing.T) {
	t.Parallel()
	b := newBench(t, delegate.Options{})
	b.config("flat.conf", single)
	b.write(filepath.Join(b.bin, "bridge"), "not executable", 0o644)
	rec, ifc := b.sandbox("bridge")
	if err := b.prepare(ifc); err != nil {
		t.Fatal(err)
	}
	err := b.backend.Attach(context.Background(), rec, ifc)
	if err == nil || !strings.Contains(err.Error(), "plugin bridge is in none of the folders") || !strings.Contains(err.Error(), b.bin) {
		t.Errorf("got %v, want the plugin and the folders", err)
	}
}

// A plugin that hangs is ended with all its children, and DEL runs all the same.
func TestTimeout(t *testing.T) {
	t.Parallel()
	b := newBench(t, delegate.Options{Timeout: 10 * time.Second})
	b.config("flat.conf", single)
	b.plugin("bridge", onAdd("echo waiting >&2; sleep 1000 & echo $! > "+b.log+"/pid; wait"))
	rec, ifc := b.sandbox("bridge")
	if err := b.prepare(ifc); err != nil {
		t.Fatal(err)
	}
	err := b.backend.Attach(context.Background(), rec, ifc)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting") {
		t.Errorf("got %v, want a deadline and what the plugin said", err)
	}
	pid, err := os.ReadFile(filepath.Join(b.log, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for running(strings.TrimSpace(string(pid))) {
		if time.Now().After(deadline) {
			t.Fatalf("child %s of the plugin still runs", pid)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if diff := cmp.Diff([]string{"ADD bridge", "DEL bridge"}, b.commands()); diff != "" {
		t.Errorf("runs: -want +got:\n%s", diff)
	}
}

// running reports whether a process is there and no zombie.
func running(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// A caller that gives up ends the plugin; DEL has time of its own.
func TestAttachCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t, delegate.Options{})
	b.config("flat.conf", single)
	b.plugin("bridge", onAdd("sleep 1000"))
	rec, ifc := b.sandbox("bridge")
	if err := b.prepare(ifc); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if found, _ := filepath.Glob(filepath.Join(b.log, "*.env")); len(found) > 0 {
				return
			}
		}
	}()
	if err := b.backend.Attach(ctx, rec, ifc); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if diff := cmp.Diff([]string{"ADD bridge", "DEL bridge"}, b.commands()); diff != "" {
		t.Errorf("runs: -want +got:\n%s", diff)
	}
}

// One plugin that cannot clean up does not keep the others from it.
func TestDetachFails(t *testing.T) {
	t.Parallel()
	b := newBench(t, delegate.Options{})
	b.config("flat.conflist", list)
	b.plugin("bridge", onAdd("echo '"+printed("1.0.0")+"'"))
	b.plugin("portmap", `[ $CNI_COMMAND = ADD ] && exec echo '`+printed("1.0.0")+`'; echo '{"code":100,"msg":"iptables is locked"}'; exit 1`)
	rec, ifc := b.attached()
	err := b.backend.Detach(context.Background(), rec, ifc)
	if err == nil || !strings.Contains(err.Error(), "portmap: DEL: iptables is locked") {
		t.Errorf("got %v, want what portmap said", err)
	}
	if diff := cmp.Diff([]string{"ADD bridge", "ADD portmap", "DEL portmap", "DEL bridge"}, b.commands()); diff != "" {
		t.Errorf("runs: -want +got:\n%s", diff)
	}
}

// A plugin that was uninstalled fails DEL as long as there is something in the
// Pod to undo, and no longer; the others run all the same.
func TestDetachWithoutPlugin(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		netns  string
		fails  bool
	}{
		"NamespaceThere": {reason: "its interface is still in the Pod", netns: "/run/netns/a", fails: true},
		"NamespaceGone":  {reason: "to fail would keep record and addresses for ever"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, delegate.Options{})
			b.config("flat.conflist", list)
			b.plugin("bridge", onAdd("echo '"+printed("1.0.0")+"'"))
			b.plugin("portmap", onAdd("echo '"+printed("1.0.0")+"'"))
			rec, ifc := b.attached()
			rec.Netns = tc.netns
			if err := os.Remove(filepath.Join(b.bin, "portmap")); err != nil {
				t.Fatal(err)
			}
			if err := b.backend.Detach(context.Background(), rec, ifc); (err != nil) != tc.fails {
				t.Errorf("%s: got %v", tc.reason, err)
			}
			if diff := cmp.Diff([]string{"ADD bridge", "ADD portmap", "DEL bridge"}, b.commands()); diff != "" {
				t.Errorf("%s: runs: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// An installer that still writes the plugin makes ADD wait, not fail.
func TestPluginBeingWritten(t *testing.T) {
	t.Parallel()
	b := newBench(t, delegate.Options{})
	b.config("flat.conf", single)
	b.plugin("bridge", "echo '"+printed("1.0.0")+"'")
	rec, ifc := b.sandbox("bridge")
	if err := b.prepare(ifc); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(filepath.Join(b.bin, "bridge"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := time.AfterFunc(250*time.Millisecond, func() { _ = writer.Close() })
	defer done.Stop()
	if err := b.backend.Attach(context.Background(), rec, ifc); err != nil {
		t.Errorf("ADD: %v", err)
	}
}
