// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/server"
	"github.com/patchbay-cni/patchbay/internal/pending"
)

// storeDel stores a DEL, as the plugin does.
func storeDel(t *testing.T, c server.Config, id string) {
	t.Helper()
	if err := pending.Write(c.PendingDir, newRequest("DEL", id)); err != nil {
		t.Fatal(err)
	}
}

// awaitNoPending waits until no DEL is pending.
func awaitNoPending(t *testing.T, c server.Config) {
	t.Helper()
	eventually(t, "no DEL is pending", func() bool {
		names, err := pending.List(c.PendingDir)
		return err == nil && len(names) == 0
	})
}

// Pending DELs are replayed, including those that are stored after the start.
func TestReplay(t *testing.T) {
	t.Parallel()
	h := &fakeHandler{}
	c := newConfig(t, h)
	storeDel(t, c, "before")
	start(t, c)
	awaitNoPending(t, c)
	storeDel(t, c, "after") // by a plugin that found no daemon
	awaitNoPending(t, c)
	if diff := cmp.Diff([]string{"DEL before", "DEL after"}, h.calls()); diff != "" {
		t.Errorf("calls: -want +got:\n%s", diff)
	}
}

// A failed DEL is replayed until it succeeds.
func TestReplayUntilItSucceeds(t *testing.T) {
	t.Parallel()
	var attempts atomic.Int32
	h := &fakeHandler{del: func(_ context.Context, req attach.Request) error {
		if req.ContainerID == "failing" && attempts.Add(1) < 4 {
			return errors.New("the delegate fails")
		}
		return nil
	}}
	c := newConfig(t, h)
	storeDel(t, c, "failing")
	storeDel(t, c, "succeeding")
	start(t, c)
	awaitNoPending(t, c)
	if got := attempts.Load(); got != 4 {
		t.Errorf("got %d attempts, want 4", got)
	}
}

// A malformed file is renamed and not replayed.
func TestBadPendingFileIsSetAside(t *testing.T) {
	t.Parallel()
	h := &fakeHandler{}
	c := newConfig(t, h)
	storeDel(t, c, "good")
	name := pending.FileName("bad", "eth0")
	if err := os.WriteFile(filepath.Join(c.PendingDir, name), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, c)
	awaitNoPending(t, c)
	if diff := cmp.Diff([]string{"DEL good"}, h.calls()); diff != "" {
		t.Errorf("calls: -want +got:\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(c.PendingDir, name+".bad")); err != nil {
		t.Errorf("malformed file: %v", err)
	}
}

// A runtime may reuse a container ID. The pending DEL must come before the new ADD.
func TestAddComesAfterItsPendingDel(t *testing.T) {
	t.Parallel()
	h := &fakeHandler{}
	c := newConfig(t, h)
	c.Limits.ReplayInterval = 1 << 40 // only the ADD triggers a replay
	d := start(t, c)
	storeDel(t, c, "c1")
	storeDel(t, c, "other")
	if res := d.call(newRequest("ADD", "c1")); res.Error != nil {
		t.Fatal(res.Error)
	}
	if diff := cmp.Diff([]string{"DEL c1", "ADD c1"}, h.calls()); diff != "" {
		t.Errorf("calls: -want +got:\n%s", diff)
	}
	names, err := pending.List(c.PendingDir)
	if diff := cmp.Diff([]string{pending.FileName("other", "eth0")}, names); diff != "" || err != nil {
		t.Errorf("pending: %v, -want +got:\n%s", err, diff)
	}
}

// An ADD waits for the replay of its sandbox's DEL.
func TestAddWaitsForAPendingDelInWork(t *testing.T) {
	t.Parallel()
	inDel, release := make(chan struct{}), make(chan struct{})
	h := &fakeHandler{del: func(context.Context, attach.Request) error {
		close(inDel)
		<-release
		return nil
	}}
	c := newConfig(t, h)
	storeDel(t, c, "c1")
	d := start(t, c)
	<-inDel
	add := d.callAsync(t.Context(), newRequest("ADD", "c1"))
	d.call(&wire.Request{Command: "STATUS"})
	if diff := cmp.Diff([]string{"DEL c1"}, h.calls()); diff != "" {
		t.Errorf("calls during the replay: -want +got:\n%s", diff)
	}
	close(release)
	if got := <-add; got.err != nil || got.res.Error != nil {
		t.Errorf("ADD: got %+v", got)
	}
	if diff := cmp.Diff([]string{"DEL c1", "ADD c1"}, h.calls()); diff != "" {
		t.Errorf("calls: -want +got:\n%s", diff)
	}
}

// An ADD fails while the DEL of its sandbox fails.
func TestAddFailsWhileItsPendingDelFails(t *testing.T) {
	t.Parallel()
	h := &fakeHandler{del: func(context.Context, attach.Request) error { return errors.New("the delegate fails") }}
	c := newConfig(t, h)
	storeDel(t, c, "c1")
	res := start(t, c).call(newRequest("ADD", "c1"))
	if res.Error == nil || res.Error.Code != wire.CodeTryAgain || !strings.Contains(res.Error.Msg, "the delegate fails") {
		t.Errorf("got %+v, want error 11 with the cause", res.Error)
	}
}

// Run returns an error with the path when it cannot create a folder.
func TestRunWithoutFolders(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(*server.Config, string){
		"Pending": func(c *server.Config, file string) { c.PendingDir = filepath.Join(file, "x") },
		"Socket":  func(c *server.Config, file string) { c.Socket = filepath.Join(file, "s") },
	} {
		c := newConfig(t, &fakeHandler{})
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		broken(&c, file)
		if err := server.New(c).Run(t.Context()); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: Run: got %v, want an error with the path", name, err)
		}
	}
}
