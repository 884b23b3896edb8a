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

// onAdd is a script that runs on ADD only.
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

// After any failure of ADD the error names plugin and cause, and DEL has run.
func TestAttachFails(t *testing.T) {
	t.Parallel()
	result := printed("1.0.0")
	cases := map[string]struct {
		reason   string
		script   string
		contains []string
		again    bool
	}{
		"OwnError": {
			reason: "The plugin's message is the cause.", script: `echo '{"cniVersion":"1.0.0","code":999,"msg":"no room","details":"pool a"}'; exit 1`,
			contains: []string{"no room", "pool a"},
		},
		"TryAgain": {
			reason: "CNI error 11 is passed on.", script: `echo '{"cniVersion":"1.0.0","code":11,"msg":"busy"}'; exit 1`, contains: []string{"busy"}, again: true,
		},
		"Stderr":       {reason: "The plugin prints no CNI error.", script: `echo "no such kernel module" >&2; exit 3`, contains: []string{"exit status 3", "no such kernel module"}},
		"Silent":       {reason: "The plugin prints nothing.", script: "exit 4", contains: []string{"exit status 4"}},
		"NoResult":     {reason: "CNI requires a result.", script: "exit 0", contains: []string{"decode its result"}},
		"NotJSON":      {reason: "CNI requires JSON.", script: "echo fine", contains: []string{"decode its result"}},
		"NullInList":   {reason: "The daemon must not panic.", script: `echo '{"cniVersion":"0.3.1","interfaces":[null]}'`, contains: []string{"interfaces[0] is null"}},
		"NullIP":       {reason: "The daemon must not panic.", script: `echo '{"cniVersion":"0.3.1","ips":[null]}'`, contains: []string{"ips[0] is null"}},
		"NullRoute":    {reason: "The daemon must not panic.", script: `echo '{"cniVersion":"0.3.1","routes":[null]}'`, contains: []string{"routes[0] is null"}},
		"Index":        {reason: "Runtimes do not check the index.", script: `echo '{"cniVersion":"1.0.0","ips":[{"interface":3,"address":"10.0.0.1/8"}]}'`, contains: []string{"ips[0].interface: 3", "of 0 interfaces"}},
		"NoDst":        {reason: "DEL could not decode it from the journal.", script: `echo '{"cniVersion":"1.0.0","routes":[{}]}'`, contains: []string{"encode the result"}},
		"Version":      {reason: "The version is not known.", script: `echo '{"cniVersion":"9.9.9"}'`, contains: []string{"9.9.9"}},
		"TooMuch":      {reason: "The journal must stay small.", script: "head -c 300000 /dev/zero", contains: []string{"262144"}},
		"LongMessage":  {reason: "Events must stay short.", script: "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", contains: []string{"exit status 1"}},
		"AfterSuccess": {reason: "The failure of a later plugin undoes the first one.", script: "echo '" + result + "'", contains: []string{"portmap", "refused"}},
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
				t.Fatalf("%s ADD succeeded", tc.reason)
			}
			for _, part := range tc.contains {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s %q does not contain %q", tc.reason, err, part)
				}
			}
			if len(err.Error()) > 5000 {
				t.Errorf("%s the message has %d bytes", tc.reason, len(err.Error()))
			}
			if errors.Is(err, attach.ErrTryAgain) != tc.again {
				t.Errorf("%s try again is %t, want %t: %v", tc.reason, !tc.again, tc.again, err)
			}
			if got := b.commands(); !slices.Contains(got, "DEL bridge") || !slices.Contains(got, "DEL portmap") {
				t.Errorf("%s DEL is missing in %q", tc.reason, got)
			}
			if ifc.Result != nil {
				t.Errorf("%s a result is left: %s", tc.reason, ifc.Result)
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
	if err == nil || !strings.Contains(err.Error(), "plugin bridge is in none of the directories") || !strings.Contains(err.Error(), b.bin) {
		t.Errorf("got %v, want the plugin and the directories", err)
	}
}

// After a timeout the plugin and its children are killed, and DEL runs.
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
		t.Errorf("got %v, want a deadline and the plugin's output", err)
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

// running reports whether a process exists and is not a zombie.
func running(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// If the caller cancels ADD, the plugin is killed, and DEL runs with its own timeout.
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

// If DEL fails in one plugin, the others still run.
func TestDetachFails(t *testing.T) {
	t.Parallel()
	b := newBench(t, delegate.Options{})
	b.config("flat.conflist", list)
	b.plugin("bridge", onAdd("echo '"+printed("1.0.0")+"'"))
	b.plugin("portmap", `[ $CNI_COMMAND = ADD ] && exec echo '`+printed("1.0.0")+`'; echo '{"code":100,"msg":"iptables is locked"}'; exit 1`)
	rec, ifc := b.attached()
	err := b.backend.Detach(context.Background(), rec, ifc)
	if err == nil || !strings.Contains(err.Error(), "portmap: DEL: iptables is locked") {
		t.Errorf("got %v, want portmap's error", err)
	}
	if diff := cmp.Diff([]string{"ADD bridge", "ADD portmap", "DEL portmap", "DEL bridge"}, b.commands()); diff != "" {
		t.Errorf("runs: -want +got:\n%s", diff)
	}
}

// DEL fails for an uninstalled plugin while the Pod's namespace exists, and not after that. The
// other plugins run in both cases.
func TestDetachWithoutPlugin(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		netns  string
		fails  bool
	}{
		"NamespaceExists": {reason: "The interface is still in the Pod.", netns: "/run/netns/a", fails: true},
		"NamespaceGone":   {reason: "A failure would keep record and addresses forever."},
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
				t.Errorf("%s got %v", tc.reason, err)
			}
			if diff := cmp.Diff([]string{"ADD bridge", "ADD portmap", "DEL bridge"}, b.commands()); diff != "" {
				t.Errorf("%s runs: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// While an installer writes the plugin, ADD waits.
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
