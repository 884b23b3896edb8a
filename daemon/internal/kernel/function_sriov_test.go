// SPDX-License-Identifier: Apache-2.0

//go:build sriov

package kernel

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
)

// An XDP program of a Pod sees the frames of the next Pod, unless it is removed: it moves with the interface. One that
// a bpf_link attaches cannot be removed, and must not see the host's frames.
func TestXDPProgramIsRemoved(t *testing.T) {
	k := openKernel(t, hostNamespace).Functions(sysfs.FS{Root: sysfs.DefaultRoot})
	cases := map[string]struct {
		reason string
		attach func(t *testing.T, program int, link netlink.Link) (remove func() error)
	}{
		"Netlink": {"DEL removes the program.", func(t *testing.T, program int, link netlink.Link) func() error {
			t.Helper()
			must(t, netlink.LinkSetXdpFdWithFlags(link, program, unix.XDP_FLAGS_SKB_MODE))
			return nil
		}},
		"BPFLink": {"DEL waits for the end of the bpf_link.", func(t *testing.T, program int, link netlink.Link) func() error {
			t.Helper()
			const attachXDP = 37 // BPF_XDP
			fd := bpf(t, unix.BPF_LINK_CREATE, &struct{ program, index, kind, flags uint32 }{uint32(program), uint32(link.Attrs().Index), attachXDP, unix.XDP_FLAGS_SKB_MODE})
			return func() error { return unix.Close(fd) }
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := exampleFunction(t, k)
			f.Netns, f.Saved.Netdev.Up = newNamespace(t), true
			t.Cleanup(func() {
				f.Saved.Netdev.Up = false
				_, err := k.Detach(context.Background(), f)
				must(t, err)
			})
			_, err := k.Attach(t.Context(), f)
			must(t, err)
			program := loadXDP(t)
			pod, err := openNamespace(f.Netns)
			must(t, err)
			var remove func() error
			must(t, pod.do(func() error {
				link, err := netlink.LinkByName(f.Name)
				if err == nil {
					remove = tc.attach(t, program, link)
				}
				return err
			}))
			must(t, pod.Close())
			if _, err := k.Detach(t.Context(), f); remove != nil {
				if err == nil || !strings.Contains(err.Error(), "a bpf_link probably attaches it") {
					t.Errorf("%s got %v, want an error about the bpf_link", tc.reason, err)
				}
				_, after, err := k.Read(t.Context(), f.Address)
				must(t, errors.Join(err, remove()))
				if after.Netdev.Up || after.Netdev.XDPProgram == 0 {
					t.Errorf("%s The interface with the program must be down: %+v", tc.reason, after.Netdev)
				}
				_, err = k.Detach(t.Context(), f)
				must(t, err)
			} else {
				must(t, err)
			}
			_, after, err := k.Read(t.Context(), f.Address)
			must(t, err)
			if diff := diffStates(f.Saved, after); diff != "" {
				t.Errorf("%s After DEL the function differs: -before +after\n%s", tc.reason, diff)
			}
		})
	}
}

// loadXDP loads a program that lets all frames pass, and returns its descriptor.
func loadXDP(t *testing.T) int {
	t.Helper()
	const typeXDP = 6                                     // BPF_PROG_TYPE_XDP
	program := []uint64{0x0000_0002_0000_00b7, 0x0000_95} // r0 = XDP_PASS; exit
	license := []byte("GPL\x00")
	fd := bpf(t, unix.BPF_PROG_LOAD, &struct {
		kind, count     uint32
		program, rights uint64
		rest            [104]byte
	}{kind: typeXDP, count: uint32(len(program)), program: uint64(uintptr(unsafe.Pointer(&program[0]))), rights: uint64(uintptr(unsafe.Pointer(&license[0])))})
	runtime.KeepAlive(program)
	runtime.KeepAlive(license)
	t.Cleanup(func() { must(t, unix.Close(fd)) })
	return fd
}

// bpf calls bpf(2) with attributes, and returns the descriptor that it makes.
func bpf[T any](t *testing.T, command uintptr, attr *T) int {
	t.Helper()
	fd, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr))
	if errno != 0 {
		t.Fatalf("bpf command %d: %v", command, errno)
	}
	return int(fd)
}

// A rate that the driver rejects does not keep a Pod.
func TestRejectedRateIsPending(t *testing.T) {
	k := openKernel(t, hostNamespace).Functions(sysfs.FS{Root: sysfs.DefaultRoot})
	f := exampleFunction(t, k)
	f.Netns = newNamespace(t)
	_, err := k.Attach(t.Context(), f)
	must(t, err)
	before := f.Saved.VF.Rate
	f.Saved.VF.Rate = &VFRate{Max: 5000} // the port was faster then
	if pending, err := k.Detach(t.Context(), f); err != nil || pending == nil || *pending != *f.Saved.VF.Rate {
		t.Errorf("got %v and the pending rate %v, want %v", err, pending, f.Saved.VF.Rate)
	}
	f.Saved.VF.Rate = before
	if pending, err := k.Detach(t.Context(), f); err != nil || pending != nil {
		t.Errorf("without the rate: got %v and the pending rate %v", err, pending)
	}
}

// A function that is up can have an address from a router's advertisement. That is no use of the node.
func TestAdvertisedAddress(t *testing.T) {
	const (
		attrProto = 11 // IFA_PROTO
		protoRA   = 2  // IFAPROT_KERNEL_RA
	)
	k := openKernel(t, hostNamespace).Functions(sysfs.FS{Root: sysfs.DefaultRoot})
	f := exampleFunction(t, k)
	link, err := k.conn.linkByName(f.Saved.Netdev.Name)
	must(t, err)
	index, address := link.Attrs().Index, prefix("fd00:9::9/64")
	message := append(addressMessage(index, address), nl.NewRtAttr(attrProto, nl.Uint8Attr(protoRA)))
	must(t, k.conn.send(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, message...))
	t.Cleanup(func() { must(t, k.conn.deleteAddress(index, address)) })
	if _, _, err := k.Read(t.Context(), f.Address); err != nil {
		t.Errorf("got %v", err)
	}
}
