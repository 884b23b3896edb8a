// SPDX-License-Identifier: Apache-2.0

//go:build sriov

package qemu_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMain rejects machines other than the guest: the tests change network cards.
func TestMain(m *testing.M) {
	if _, err := os.Stat("/sys/class/net/pf0/device/sriov_numvfs"); err != nil {
		os.Stderr.WriteString("no physical function pf0: run make test-sriov, or go test -exec 'bin/kerneltest --kernel qemu'\n")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// functions is how many virtual functions each physical one has.
const functions = 7

func TestFunctions(t *testing.T) {
	for _, pf := range []string{"pf0", "pf1"} {
		device := "/sys/class/net/" + pf + "/device"
		if got := read(t, device+"/sriov_numvfs"); got != strconv.Itoa(functions) {
			t.Errorf("%s has %s virtual functions, want %d", pf, got, functions)
		}
		address := filepath.Base(follow(t, device))
		for n := range functions {
			f := function{pf, n}
			if got := filepath.Base(follow(t, "/sys/bus/pci/devices/"+f.address(t)+"/physfn")); got != address {
				t.Errorf("function %d of %s belongs to %s, want %s", n, pf, got, address)
			}
			if got := f.driver(t); got != "igbvf" {
				t.Errorf("function %d of %s has the driver %q", n, pf, got)
			}
		}
	}
}

// The two physical functions are connected, so this goes through both.
func TestVLANs(t *testing.T) {
	const vlan, other = "100", "200"
	near, far, stranger := function{"pf0", 0}, function{"pf1", 0}, function{"pf1", 1}
	near.enter(t, "near", "10.0.0.1/24", vlan)
	far.enter(t, "far", "10.0.0.2/24", vlan)
	stranger.enter(t, "stranger", "10.0.0.3/24", other)
	await(t, "functions in one VLAN reach each other", func() bool { return ping("near", "10.0.0.2") })
	if ping("near", "10.0.0.3") {
		t.Error("a function reaches one in another VLAN")
	}
	run(t, "ip", "link", "set", "pf1", "vf", "1", "vlan", vlan)
	await(t, "a function that moved into the VLAN is reached", func() bool { return ping("near", "10.0.0.3") })
}

func TestVFIO(t *testing.T) {
	f := function{"pf0", functions - 1}
	address := f.address(t)
	device := "/sys/bus/pci/devices/" + address
	group := filepath.Base(follow(t, device+"/iommu_group"))
	if members, err := os.ReadDir("/sys/kernel/iommu_groups/" + group + "/devices"); err != nil || len(members) != 1 {
		t.Fatalf("the function shares its IOMMU group %s: %v (error: %v)", group, members, err)
	}
	bind := func(driver string) {
		t.Helper()
		write(t, device+"/driver_override", driver)
		write(t, device+"/driver/unbind", address)
		write(t, "/sys/bus/pci/drivers_probe", address)
	}
	bind("vfio-pci")
	t.Cleanup(func() { bind("igbvf") })
	if got := f.driver(t); got != "vfio-pci" {
		t.Fatalf("the function has the driver %q", got)
	}
	if _, err := os.Stat("/dev/vfio/" + group); err != nil {
		t.Error(err)
	}
	if nics, err := os.ReadDir(device + "/net"); err == nil {
		t.Errorf("the function still has network cards: %v", nics)
	}
}

func TestModprobe(t *testing.T) {
	run(t, "modprobe", "sch_netem")
	// The kernel loads this one by itself.
	run(t, "ip", "link", "add", "geneve9", "type", "geneve", "id", "9", "remote", "10.0.0.9")
	run(t, "ip", "link", "delete", "geneve9")
}

// function is a virtual function, by its physical one and its number.
type function struct {
	pf string
	n  int
}

func (f function) number() string { return strconv.Itoa(f.n) }

// address returns the function's PCI address.
func (f function) address(t *testing.T) string {
	t.Helper()
	return filepath.Base(follow(t, "/sys/class/net/"+f.pf+"/device/virtfn"+f.number()))
}

func (f function) driver(t *testing.T) string {
	t.Helper()
	return filepath.Base(follow(t, "/sys/bus/pci/devices/"+f.address(t)+"/driver"))
}

// enter moves the function into a new network namespace.
func (f function) enter(t *testing.T, namespace, prefix, vlan string) {
	t.Helper()
	nics, err := os.ReadDir("/sys/bus/pci/devices/" + f.address(t) + "/net")
	if err != nil || len(nics) != 1 {
		t.Fatalf("function %d of %s has %d network cards (error: %v)", f.n, f.pf, len(nics), err)
	}
	nic := nics[0].Name()
	mac := "02:00:00:00:0" + f.pf[2:] + ":0" + f.number()
	run(t, "ip", "netns", "add", namespace)
	t.Cleanup(func() { run(t, "ip", "netns", "delete", namespace) })
	// In this order: otherwise the driver rejects the address, and the check of sources drops all packets.
	run(t, "ip", "link", "set", nic, "address", mac)
	run(t, "ip", "link", "set", f.pf, "vf", f.number(), "mac", mac, "vlan", vlan)
	run(t, "ip", "link", "set", nic, "netns", namespace)
	run(t, "ip", "-netns", namespace, "address", "add", prefix, "dev", nic)
	run(t, "ip", "-netns", namespace, "link", "set", nic, "up")
}

// ping tells whether an address answers one of three requests.
func ping(namespace, address string) bool {
	return exec.Command("ip", "netns", "exec", namespace, "ping", "-c", "3", "-W", "1", address).Run() == nil
}

// await polls until a condition is true.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	const patience, pause = 3 * time.Minute, 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !condition() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			out, _ := exec.Command("ip", "-d", "link").CombinedOutput()
			t.Fatalf("%s: not in %s; links:\n%s", what, patience, out)
		}
	}
}

func run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0); err != nil {
		t.Fatal(err)
	}
}

func follow(t *testing.T, link string) string {
	t.Helper()
	target, err := os.Readlink(link)
	if err != nil {
		t.Fatal(err)
	}
	return target
}
