// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package netns

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// newNamespace makes a namespace for a test.
func newNamespace(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("pb-netns-%d", os.Getpid())
	if err := Add(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := KillProcesses(context.WithoutCancel(t.Context()), name); err != nil {
			t.Error(err)
		}
		if err := Delete(name); err != nil {
			t.Error(err)
		}
		if Exists(name) {
			t.Error("the namespace is still there")
		}
	})
	return name
}

func TestNamespace(t *testing.T) {
	name := newNamespace(t)
	if err := Add(name); err != nil {
		t.Errorf("Add again: %v", err)
	}
	if err := Batch(name, "link add d0 type bridge", "address add 192.0.2.1/24 dev d0", "link set d0 up"); err != nil {
		t.Fatal(err)
	}
	links, err := Links(name)
	if err != nil || !slices.Contains(links, "d0") {
		t.Errorf("Links: got %v, %v", links, err)
	}
	if err := Batch(name, "link set nothing up"); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("Batch: got %v, want an error with the line", err)
	}
	if _, err := net.InterfaceByName("d0"); err == nil {
		t.Error("the link is in the machine's own namespace")
	}
}

// A connection is made inside, used outside, and the calling thread stays where it was.
func TestDial(t *testing.T) {
	name := newNamespace(t)
	var listener net.Listener
	if err := Do(name, func() (err error) {
		// An address where nobody on the machine listens, whatever the port is.
		listener, err = net.Listen("tcp", "127.89.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := listener.Addr().String()
	conn, err := Dial(t.Context(), name, net.Dialer{Timeout: time.Minute}, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if conn, err := net.DialTimeout("tcp", address, time.Minute); err == nil {
		_ = conn.Close()
		t.Error("the listener can be reached from the machine's own namespace")
	}
}

func TestKillProcesses(t *testing.T) {
	name := newNamespace(t)
	cmd := exec.Command("nsenter", "--net="+Path(name), "sh", "-c", "sleep 60 & sleep 60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		ids, err := Processes(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) == 3 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("want 3 processes, got %v", ids)
		}
	}
	if err := KillProcesses(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
	if ids, err := Processes(name); err != nil || len(ids) > 0 {
		t.Errorf("left: %v (error: %v)", ids, err)
	}
}

func TestNoNamespace(t *testing.T) {
	const name = "pb-no-such-namespace"
	if err := Delete(name); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if err := KillProcesses(t.Context(), name); err != nil {
		t.Errorf("Empty: %v", err)
	}
	if err := Do(name, func() error { return nil }); err == nil {
		t.Error("Do: no error")
	}
}
