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

	"github.com/patchbay-cni/patchbay/cni/pending"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/server"
)

// leave records a DEL as the plugin does.
func leave(t *testing.T, c server.Config, id string) {
	t.Helper()
	if err := pending.Write(c.PendingDir, request("DEL", id)); err != nil {
		t.Fatal(err)
	}
}

// done waits until no DEL is pending.
func done(t *testing.T, c server.Config) {
	t.Helper()
	eventually(t, "no DEL is pending", func() bool {
		names, err := pending.List(c.PendingDir)
		return err == nil && len(names) == 0
	})
}

func TestReplay(t *testing.T) {
	t.Parallel()
	h := &handler{}
	c := prepare(t, h)
	leave(t, c, "before")
	start(t, c)
	done(t, c)
	leave(t, c, "after") // by a plugin that met the last daemon's end
	done(t, c)
	if diff := cmp.Diff([]string{"DEL before", "DEL after"}, h.calls()); diff != "" {
		t.Errorf("calls: -want +got:\n%s", diff)
	}
}

func TestReplayUntilItSucceeds(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	h := &handler{del: func(_ context.Context, req attach.Request) error {
		if req.ContainerID == "stubborn" && tries.Add(1) < 4 {
			return errors.New("the delegate fails")
		}
		return nil
	}}
	c := prepare(t, h)
	leave(t, c, "stubborn")
	leave(t, c, "willing")
	start(t, c)
	done(t, c)
	if got := tries.Load(); got != 4 {
		t.Errorf("got %d tries, want 4", got)
	}
}

func TestBadPendingFileIsSetAside(t *testing.T) {
	t.Parallel()
	h := &handler{}
	c := prepare(t, h)
	leave(t, c, "good")
	name := pending.FileName("bad", "eth0")
	if err := os.WriteFile(filepath.Join(c.PendingDir, name), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, c)
	done(t, c)
	if diff := cmp.Diff([]string{"DEL good"}, h.calls()); diff != "" {
		t.Errorf("calls: -want +got:\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(c.PendingDir, name+".bad")); err != nil {
		t.Errorf("the bad file is kept for people: %v", err)
	}
}

// A runtime may use a container ID again: the old DEL must not take away what
// the new ADD attached.
func TestAddComesAfterItsPendingDel(t *testing.T) {
	t.Parallel()
	h := &handler{}
	c := prepare(t, h)
	c.Limits.ReplayInterval = 1 << 40 // only the ADD looks
	d := start(t, c)
	leave(t, c, "c1")
	leave(t, c, "other")
	if res := d.call(request("ADD", "c1")); res.Error != nil {
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

func TestAddWaitsForAPendingDelInWork(t *testing.T) {
	t.Parallel()
	inDel, release := make(chan struct{}), make(chan struct{})
	h := &handler{del: func(context.Context, attach.Request) error {
		close(inDel)
		<-release
		return nil
	}}
	c := prepare(t, h)
	leave(t, c, "c1")
	d := start(t, c)
	<-inDel
	add := d.later(t.Context(), request("ADD", "c1"))
	d.call(&wire.Request{Command: "STATUS"})
	if diff := cmp.Diff([]string{"DEL c1"}, h.calls()); diff != "" {
		t.Errorf("calls while the DEL is in work: -want +got:\n%s", diff)
	}
	close(release)
	if got := <-add; got.err != nil || got.res.Error != nil {
		t.Errorf("ADD: got %+v", got)
	}
	if diff := cmp.Diff([]string{"DEL c1", "ADD c1"}, h.calls()); diff != "" {
		t.Errorf("calls: -want +got:\n%s", diff)
	}
}

func TestAddIsRefusedWhileItsPendingDelFails(t *testing.T) {
	t.Parallel()
	h := &handler{del: func(context.Context, attach.Request) error { return errors.New("the delegate fails") }}
	c := prepare(t, h)
	leave(t, c, "c1")
	res := start(t, c).call(request("ADD", "c1"))
	if res.Error == nil || res.Error.Code != wire.CodeTryAgain || !strings.Contains(res.Error.Msg, "the delegate fails") {
		t.Errorf("got %+v, want error 11 and why", res.Error)
	}
}

func TestFoldersThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(*server.Config, string){
		"Pending": func(c *server.Config, file string) { c.PendingDir = filepath.Join(file, "x") },
		"Socket":  func(c *server.Config, file string) { c.Socket = filepath.Join(file, "s") },
	} {
		c := prepare(t, &handler{})
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
