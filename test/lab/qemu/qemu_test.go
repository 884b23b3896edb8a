// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/test/lab/guest"
	"github.com/patchbay-cni/patchbay/test/lab/vm"
	"github.com/patchbay-cni/patchbay/test/lab/vm/vmtest"
)

func TestArgs(t *testing.T) {
	t.Parallel()
	kernel := Kernel{Dir: "/q", Release: "6.12"}
	full := vmtest.Full("/run/x,y")
	full.Cards = append(full.Cards,
		vm.Card{Card: guest.Card{Name: "ens4", MAC: "02:00:00:00:00:02"}, Tap: "t1", SRIOV: true},
		vm.Card{Card: guest.Card{Name: "pf0", MAC: "02:00:00:00:00:03"}, SRIOV: true},
	)
	vmtest.CheckArgs(t, kernel.args, map[string]vmtest.ArgsCase{
		"Plain": {
			Reason: "The root is read-only, the guest's folder is not, and a comma in a path is doubled.",
			Config: vmtest.Plain("/run/x,y"),
			Has: []string{
				"/q/usr/bin/qemu-system-x86_64", "guest=/run/x,y", "512", "/q/vmlinuz", "/run/x,y/initrd",
				"local,id=root,path=/,security_model=passthrough,multidevs=remap,readonly=on",
				"local,id=share0,path=/run/x,,y,security_model=passthrough,multidevs=remap",
				"null,id=output", "file,id=console,append=on,path=/run/x,,y/console.log",
			},
			HasNot: []string{"virtio-blk-pci", "virtio-net-pci", "igb", "local,id=share1"},
		},
		"Full": {
			Reason: "Devices are numbered in the order given; each physical function has a root port.",
			Config: full,
			Has: []string{
				"file,path=/proc/self/fd/3,append=on,id=output",
				"local,id=share1,path=/tmp/clone,security_model=passthrough,multidevs=remap,readonly=on",
				"if=none,format=raw,discard=unmap,cache=unsafe,id=disk0,file=/var/a", "virtio-blk-pci,drive=disk1",
				"tap,id=card0,script=no,downscript=no,ifname=t0", "virtio-net-pci,romfile=,netdev=card0,mac=02:00:00:00:00:01",
				"pcie-root-port,bus=pcie.0,id=port1,slot=2,chassis=2", "igb,bus=port1,netdev=card1,mac=02:00:00:00:00:02",
				"hubport,hubid=0,id=card2", "igb,bus=port2,netdev=card2,mac=02:00:00:00:00:03",
			},
			HasNot: []string{"local,id=share2"},
		},
	})
}

func TestResolve(t *testing.T) {
	t.Parallel()
	const dependencies = `kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko
kernel/net/9p/9pnet.ko: kernel/fs/netfs/netfs.ko
kernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko
kernel/fs/netfs/netfs.ko:
`
	cases := map[string]struct {
		reason string
		names  []string
		want   []string
		fails  bool
	}{
		"Alone": {reason: "A module that needs no other is loaded alone.", names: []string{"netfs"}, want: []string{"kernel/fs/netfs/netfs.ko"}},
		"Shared": {
			reason: "What two modules need is loaded once, before both.",
			names:  []string{"9pnet_virtio", "9p"},
			want:   []string{"kernel/fs/netfs/netfs.ko", "kernel/net/9p/9pnet.ko", "kernel/net/9p/9pnet_virtio.ko", "kernel/fs/9p/9p.ko"},
		},
		"Unknown": {reason: "A guest without this module would not boot.", names: []string{"9p", "nothing"}, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := resolve(dependencies, tc.names...)
			if (err != nil) != tc.fails {
				t.Fatalf("%s\nresolve: got %v, want error: %t", tc.reason, err, tc.fails)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n%s", tc.reason, diff)
			}
		})
	}
}

// Names with their zero byte and contents are filled up to multiples of four bytes, and so is the
// header of 110 bytes with the name.
func TestArchive(t *testing.T) {
	t.Parallel()
	var a archive
	a.folder("b")
	a.file("b/sh", 0o755, []byte("hello"))
	const zero = "00000000"
	want := "070701" + "00000001" + "000041ed" + zero + zero + "00000001" + zero + zero + zero + zero + zero + zero + "00000002" + zero + "b\x00" +
		"070701" + "00000002" + "000081ed" + zero + zero + "00000001" + zero + "00000005" + zero + zero + zero + zero + "00000005" + zero + "b/sh\x00\x00" + "hello\x00\x00\x00" +
		"070701" + "00000003" + zero + zero + zero + "00000001" + zero + zero + zero + zero + zero + zero + "0000000b" + zero + "TRAILER!!!\x00\x00\x00\x00"
	if diff := cmp.Diff(want, string(a.end())); diff != "" {
		t.Error(diff)
	}
}

func TestFindKernel(t *testing.T) {
	t.Parallel()
	complete, partial := t.TempDir(), t.TempDir()
	installation := t.TempDir()
	k := Kernel{Dir: installation, Release: "6.12-amd64"}
	for _, file := range []string{k.program(), k.image(), k.moduleTree() + "/modules.dep"} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(installation, filepath.Join(complete, installed)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(partial, installed), 0o755); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason, bin string
		want        Kernel
		fails       bool
	}{
		"Complete": {reason: "The link is followed, and the modules' folder names the kernel.", bin: complete, want: k},
		"Missing":  {reason: "The error names the command that gets QEMU.", bin: t.TempDir(), fails: true},
		"Partial":  {reason: "A folder without QEMU is of no use.", bin: partial, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := FindKernel(tc.bin)
			if (err != nil) != tc.fails {
				t.Fatalf("%s\nFindKernel: got %v, want error: %t", tc.reason, err, tc.fails)
			}
			if err != nil && !strings.Contains(err.Error(), "scripts/install-sriov") {
				t.Errorf("%s\ngot %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n%s", tc.reason, diff)
			}
		})
	}
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]string{
		"QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright\n": "10.0.2",
		"QEMU emulator version 10.0.2\n":                                   "10.0.2",
		"QEMU emulator version ":                                           "",
		"":                                                                 "",
	} {
		if got := parseVersion(out); got != want {
			t.Errorf("parseVersion(%q): got %q, want %q", out, got, want)
		}
	}
}
