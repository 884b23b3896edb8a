// SPDX-License-Identifier: Apache-2.0

//go:build sriov

package kernel

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
)

// Variables by which a test starts its own program again, which SIGKILL then ends.
const (
	// killFunction has the Function as JSON.
	killFunction = "PATCHBAY_KILL_FUNCTION"
	// killVerb is "attach" or "detach".
	killVerb = "PATCHBAY_KILL_VERB"
	// killAt is the number of the change of the kernel before which the program dies, from 1.
	killAt = "PATCHBAY_KILL_AT"
)

// hostNamespace is that of the guest. The process's own may be another: newNamespace can take its first
// thread, which cannot end.
const hostNamespace = "/proc/1/ns/net"

// A daemon that is killed at any change of ADD or DEL leaves a function that the next daemon's DEL makes
// as it was before.
func TestFunctionSurvivesKills(t *testing.T) {
	if verb := os.Getenv(killVerb); verb != "" {
		runVerb(t, verb)
		return
	}
	k := openKernel(t, hostNamespace).Functions(sysfs.FS{Root: sysfs.DefaultRoot})
	f := exampleFunction(t, k)
	for _, verb := range []string{"attach", "detach"} {
		t.Run(verb, func(t *testing.T) {
			for step := 1; ; step++ {
				f.Netns = newNamespace(t)
				if verb == "detach" {
					if _, err := k.Attach(t.Context(), f); err != nil {
						t.Fatal(err)
					}
				}
				killed := runUntilKilled(t, f, verb, step)
				if _, err := k.Detach(t.Context(), f); err != nil {
					t.Fatalf("DEL after a kill before change %d of %s: %v", step, verb, err)
				}
				_, after, err := k.Read(t.Context(), f.Address)
				if err != nil {
					t.Fatalf("after a kill before change %d of %s: %v", step, verb, err)
				}
				if diff := diffStates(f.Saved, after); diff != "" {
					t.Fatalf("after a kill before change %d of %s: -before +after\n%s", step, verb, diff)
				}
				if !killed {
					if step < 5 {
						t.Fatalf("%s has %d changes", verb, step-1)
					}
					t.Logf("%s was killed before each of %d changes", verb, step-1)
					return
				}
			}
		})
	}
}

// exampleFunction is a function of pf0 with every setting that its driver takes.
func exampleFunction(t *testing.T, k *Functions) *Function {
	t.Helper()
	all, err := sysfs.FS{Root: sysfs.DefaultRoot}.Functions("pf0")
	if err != nil || len(all) == 0 {
		t.Fatalf("functions of pf0: %v, %v", all, err)
	}
	address := all[0].Address
	_, saved, err := k.Read(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	own, err := net.ParseMAC(saved.Netdev.MAC)
	if err != nil {
		t.Fatal(err)
	}
	return &Function{
		PodInterface: PodInterface{
			Name: "net1", Owner: "ClusterNetwork/fast", V4: prefix("10.0.0.5/24"), Table: 100, PolicyRoutes: routes("10.9.0.0/16", "10.0.0.1"),
		},
		Address: address, Saved: saved, MTU: 1400, Promiscuous: true,
		Settings: VFSettings{MAC: own, VLAN: &VFVLAN{ID: 500, QoS: 3}, SpoofCheck: new(false), Trust: new(true), Rate: &VFRate{Max: 100}},
	}
}

// diffStates returns how two states differ, or "". The physical function reports the MAC of the function's
// interface, or none when the driver's message to it was lost: it enforces neither.
func diffStates(before, after FunctionState) string {
	for _, s := range []*FunctionState{&before, &after} {
		if s.OwnMAC = isZeroMAC(s.VF.MAC) || s.VF.MAC.String() == s.Netdev.MAC; s.OwnMAC {
			s.VF.MAC = nil
		}
	}
	return cmp.Diff(before, after)
}

// runUntilKilled runs the verb in a program of its own, and reports whether it was killed.
func runUntilKilled(t *testing.T, f *Function, verb string, step int) bool {
	t.Helper()
	doc, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestFunctionSurvivesKills$")
	cmd.Env = append(os.Environ(), killFunction+"="+string(doc), killVerb+"="+verb, killAt+"="+strconv.Itoa(step))
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == unix.SIGKILL {
			return true
		}
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", verb, err, bytes.TrimSpace(out))
	}
	return false
}

// runVerb is what the program does that is killed.
func runVerb(t *testing.T, verb string) {
	t.Helper()
	f := &Function{}
	if err := json.Unmarshal([]byte(os.Getenv(killFunction)), f); err != nil {
		t.Fatal(err)
	}
	left, err := strconv.Atoi(os.Getenv(killAt))
	if err != nil {
		t.Fatal(err)
	}
	host := openKernel(t, hostNamespace)
	host.conn.observe = func(kind int) {
		switch kind {
		case unix.RTM_GETLINK, unix.RTM_GETADDR:
			return
		}
		if left--; left == 0 {
			must(t, unix.Kill(os.Getpid(), unix.SIGKILL))
		}
	}
	k := host.Functions(sysfs.FS{Root: sysfs.DefaultRoot})
	if verb == "detach" {
		_, err := k.Detach(t.Context(), f)
		must(t, err)
		return
	}
	_, err = k.Attach(t.Context(), f)
	must(t, err)
}
