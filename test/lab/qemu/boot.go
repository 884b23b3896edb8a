// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/guest"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/lab/vm"
)

// Names in a guest's folder.
const (
	initrdFile   = "initrd"
	modprobeFile = "modprobe"
)

// functions is the number of virtual functions of each physical one: as many as igb can have.
const functions = 7

// How the guest mounts folders of the machine. What it has read of the machine's files it keeps in
// memory; its own folder it shares with the machine at any time.
const (
	rootTag      = "root"
	shareOptions = "trans=virtio,version=9p2000.L,msize=512000,cache="
	rootOptions  = "ro," + shareOptions + "loose"
)

// Boot implements vm.Kernel.
func (k Kernel) Boot(c vm.Config) (process.ID, error) {
	c.Visible = append(slices.Clone(c.Visible), k.Dir)
	if err := k.prepare(c); err != nil {
		return process.ID{}, fmt.Errorf("prepare guest: %w", err)
	}
	return c.Start(k.args(c), k.environment())
}

// prepare fills the guest's folder.
func (k Kernel) prepare(c vm.Config) error {
	c.Spec.ModuleRoot, c.Spec.Modules = k.Dir, modules()
	// Programs in the guest run modprobe, and so does the kernel, which gives it no environment.
	c.Spec.Env = append(slices.Clone(c.Spec.Env), "MODPROBE_OPTIONS=-d "+k.Dir)
	setup := [][]string{{"/sbin/sysctl", "-q", "-w", "kernel.modprobe=" + vm.GuestDir + "/" + modprobeFile}}
	for _, card := range c.Cards {
		if card.SRIOV {
			setup = append(setup, []string{"/bin/sh", "-ec", fmt.Sprintf("echo %d >/sys/class/net/%s/device/sriov_numvfs", functions, card.Name)})
		}
	}
	c.Spec.Setup = append(setup, c.Spec.Setup...)
	if err := c.Prepare(mountShare); err != nil {
		return err
	}
	script := "#!/bin/sh\nexec /sbin/modprobe -d " + k.Dir + ` "$@"` + "\n"
	if err := os.WriteFile(c.Path(modprobeFile), []byte(script), 0o755); err != nil {
		return fmt.Errorf("write modprobe: %w", err)
	}
	initrd, err := k.initrd()
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.Path(initrdFile), initrd, 0o644); err != nil {
		return fmt.Errorf("write initial RAM file system: %w", err)
	}
	return nil
}

// modules are the drivers that every guest loads at boot: those of its devices, those of virtual
// functions, and those that must be there before the kernel can load others by itself.
func modules() []string {
	return []string{
		"virtio_net", "virtio_blk", "ext4", "overlay", "igb", "igbvf", "vfio-pci", "vfio_iommu_type1",
		"8021q", "br_netfilter", "tun",
	}
}

func mountShare(n int, s vm.Share) guest.Mount {
	cache := "none"
	if s.ReadOnly {
		cache = "loose"
	}
	return guest.Mount{Source: shareTag(n), Target: s.Target, Type: "9p", Data: shareOptions + cache, ReadOnly: s.ReadOnly}
}

func shareTag(n int) string { return "share" + strconv.Itoa(n) }

// args returns QEMU's command line.
func (k Kernel) args(c vm.Config) []string {
	output := "null"
	if c.Output != nil {
		output = "file,path=/proc/self/fd/3,append=on"
	}
	args := []string{
		k.program(), "-name", vm.Mark(c.Dir), "-L", k.Dir + "/usr/share/qemu", "-L", k.Dir + "/usr/share/seabios",
		// With a thread for each of two processors, one boot of six ended in an assertion of QEMU's memory
		// map or hung without interrupts. One thread takes no longer.
		"-machine", "q35,kernel-irqchip=split", "-accel", "tcg,thread=single", "-smp", "1",
		// With erms and fsrm, the kernel copies and clears memory by string instructions, which QEMU simulates
		// byte by byte: programs then take up to twice as long to start.
		"-cpu", "max,erms=off,fsrm=off",
		"-m", strconv.Itoa(c.Memory), "-nodefaults", "-display", "none", "-no-reboot",
		// It remaps interrupts, so it comes before the devices.
		"-device", "intel-iommu,intremap=on,caching-mode=on",
		"-kernel", k.image(), "-initrd", c.Path(initrdFile), "-append", kernelOptions(c),
		"-chardev", output + ",id=output", "-serial", "chardev:output",
		"-chardev", "file,id=console,append=on,path=" + escape(vm.ConsoleLog(c.Dir)), "-serial", "chardev:console",
	}
	args = append(args, shareArgs(rootTag, "/", true)...)
	for n, s := range c.Shares() {
		args = append(args, shareArgs(shareTag(n), s.Dir, s.ReadOnly)...)
	}
	for n, d := range c.Disks {
		// What QEMU has written survives its end, so it need not wait for the machine's disk.
		id := "disk" + strconv.Itoa(n)
		args = append(args, "-drive", "if=none,format=raw,discard=unmap,cache=unsafe,id="+id+",file="+escape(d), "-device", "virtio-blk-pci,drive="+id)
	}
	for n, card := range c.Cards {
		args = append(args, cardArgs(n, card)...)
	}
	return args
}

// kernelOptions is the command line of the guest's kernel. What the kernel does not know it hands over
// to the initial RAM file system: labinit as a variable, and nokaslr, which is for the boot loader, as
// an argument.
func kernelOptions(c vm.Config) string {
	init := strings.Join(append([]string{c.InitPath()}, c.InitArgs()...), " ")
	return strings.Join([]string{
		"console=ttyS1", "quiet",
		// A guest that hangs is worse than one that ends.
		"panic=-1", "oops=panic",
		"intel_iommu=on", "iommu=pt", "nokaslr", "mitigations=off", "cgroup_no_v1=all",
		// Drivers create no links by themselves.
		"dummy.numdummies=0", "ifb.numifbs=0", "bonding.max_bonds=0",
		// A namespace may have an RDMA device of its own. This cannot change once there are namespaces.
		"ib_core.netns_mode=0",
		`labinit="` + init + `"`,
	}, " ")
}

func shareArgs(tag, dir string, readOnly bool) []string {
	share := "local,id=" + tag + ",path=" + escape(dir) + ",security_model=passthrough,multidevs=remap"
	if readOnly {
		share += ",readonly=on"
	}
	return []string{"-fsdev", share, "-device", "virtio-9p-pci,fsdev=" + tag + ",mount_tag=" + tag}
}

// cardArgs connect a network card. Each physical function is behind a root port of its own, as in a
// machine's slot: the IOMMU then has a group for each virtual function.
func cardArgs(n int, card vm.Card) []string {
	number := strconv.Itoa(n)
	id := "card" + number
	network := "tap,id=" + id + ",script=no,downscript=no,ifname=" + card.Tap
	if card.Tap == "" {
		network = "hubport,hubid=0,id=" + id
	}
	device := "netdev=" + id + ",mac=" + card.MAC
	if !card.SRIOV {
		return []string{"-netdev", network, "-device", "virtio-net-pci,romfile=," + device}
	}
	slot := strconv.Itoa(n + 1)
	return []string{
		"-netdev", network,
		"-device", "pcie-root-port,bus=pcie.0,id=port" + number + ",slot=" + slot + ",chassis=" + slot,
		"-device", "igb,bus=port" + number + "," + device,
	}
}

// escape makes a path part of a list that is separated by commas.
func escape(path string) string { return strings.ReplaceAll(path, ",", ",,") }
