// SPDX-License-Identifier: Apache-2.0

//go:build sriov

package kernel

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
)

// An XDP program of a Pod sees the frames of the next Pod, unless it is removed: it moves with the interface.
func TestXDPProgramIsRemoved(t *testing.T) {
	k := openKernel(t, hostNamespace).Functions(sysfs.FS{Root: sysfs.DefaultRoot})
	f := exampleFunction(t, k)
	f.Netns = newNamespace(t)
	if _, err := k.Attach(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	program := loadXDP(t)
	pod, err := openNamespace(f.Netns)
	must(t, err)
	must(t, pod.do(func() error {
		link, err := netlink.LinkByName(f.Name)
		if err != nil {
			return err
		}
		return netlink.LinkSetXdpFdWithFlags(link, program, unix.XDP_FLAGS_SKB_MODE)
	}))
	must(t, pod.Close())
	if _, err := k.Detach(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	_, after, err := k.Read(f.Address)
	must(t, err)
	if diff := diffStates(f.Saved, after); diff != "" {
		t.Errorf("After DEL the function differs: -before +after\n%s", diff)
	}
}

// loadXDP loads a program that lets all frames pass, and returns its descriptor.
func loadXDP(t *testing.T) int {
	t.Helper()
	const typeXDP = 6                                     // BPF_PROG_TYPE_XDP
	program := []uint64{0x0000_0002_0000_00b7, 0x0000_95} // r0 = XDP_PASS; exit
	license := []byte("GPL\x00")
	attr := struct {
		kind, count     uint32
		program, rights uint64
		rest            [104]byte
	}{kind: typeXDP, count: uint32(len(program)), program: uint64(uintptr(unsafe.Pointer(&program[0]))), rights: uint64(uintptr(unsafe.Pointer(&license[0])))}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(program)
	runtime.KeepAlive(license)
	if errno != 0 {
		t.Fatalf("load an XDP program: %v", errno)
	}
	t.Cleanup(func() { must(t, unix.Close(int(fd))) })
	return int(fd)
}
