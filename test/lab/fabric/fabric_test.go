// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package fabric

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/lab/netns"
)

func newFabric(t *testing.T) Fabric {
	t.Helper()
	f := Fabric{Netns: fmt.Sprintf("pb-fabric-%d", os.Getpid())}
	t.Cleanup(func() {
		if err := f.Delete(); err != nil {
			t.Error(err)
		}
	})
	if err := f.Create(); err != nil {
		t.Fatal(err)
	}
	return f
}

// Everything may be repeated, as `lab up` does, and stays as it was.
func TestCreateAndPlugAgain(t *testing.T) {
	f := newFabric(t)
	if err := f.Plug(3); err != nil {
		t.Fatal(err)
	}
	if err := f.Cut(3); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Create(), f.Plug(3), f.Plug(4)); err != nil {
		t.Fatal(err)
	}
	links, err := netns.Links(f.Netns)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mgmt", "trunk", "second", "agent", "n3-ens3", "n3-ens4", "n3-ens5", "n3-agent", "n4-ens3"} {
		if !slices.Contains(links, want) {
			t.Errorf("link %s is missing in %v", want, links)
		}
	}
	for port, want := range map[Port]bool{3: true, 4: false} {
		if cut, err := f.IsCut(port); err != nil || cut != want {
			t.Errorf("IsCut(%d): got %t, %v; want %t", port, cut, err, want)
		}
	}
	rules, err := f.run("", "nft", "list", "ruleset")
	if err != nil || strings.Count(rules, "dnat to 10.89.0.1:6443") != 1 {
		t.Errorf("the API server's Service is translated not once: %s (error: %v)", rules, err)
	}
}

func TestCutAndHeal(t *testing.T) {
	f := newFabric(t)
	if err := f.Cut(1); err == nil {
		t.Error("Cut: no error for a node that is not plugged in")
	}
	if _, err := f.IsCut(1); !errors.Is(err, ErrNotPlugged) {
		t.Errorf("IsCut: got %v, want ErrNotPlugged", err)
	}
	if err := f.Plug(1); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		do  func(Port) error
		cut bool
	}{{f.Cut, true}, {f.Cut, true}, {f.Heal, false}, {f.Heal, false}} {
		if err := step.do(1); err != nil {
			t.Fatal(err)
		}
		if cut, err := f.IsCut(1); err != nil || cut != step.cut {
			t.Errorf("IsCut: got %t, %v; want %t", cut, err, step.cut)
		}
	}
}

// Only the machine's end of the management network has an address: the trunk is for
// the nodes, and labs must not be able to reach anything else.
func TestAddresses(t *testing.T) {
	f := newFabric(t)
	if err := f.Plug(1); err != nil {
		t.Fatal(err)
	}
	out, err := f.run("", "ip", "-brief", "address")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		has := len(fields) > 2
		if want := slices.Contains([]string{"lo", "mgmt", "agent"}, fields[0]); has != want {
			t.Errorf("addresses of %s: %v", fields[0], fields[2:])
		}
	}
	if out, err := f.run("", "ip", "route", "show", "default"); err != nil || out != "" {
		t.Errorf("there is a way out: %s (error: %v)", out, err)
	}
}
