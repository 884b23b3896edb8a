// SPDX-License-Identifier: Apache-2.0

// Command kerneltest runs a program in a kernel of its own that has the drivers which
// many a machine lacks: IPVLAN, VLAN, VXLAN, MACVLAN, VRF (User-Mode Linux, the default), or
// SR-IOV, an IOMMU and vfio-pci (-kernel qemu).
//
//	kerneltest [FLAGS] PROGRAM [ARGUMENTS]
//
// The program runs as root in the caller's folder, sees the machine's files
// read-only with an empty /tmp and /run of its own, and has no network card (except in
// QEMU, see below). Its output (standard output and error in one stream) and its exit code are
// passed on. A guest that dies, panics or does not end in time is a failure, exit code 125.
//
// It fits where go test wants a program that runs test binaries:
//
//	go build -o bin/kerneltest ./test/lab/cmd/kerneltest
//	go test -tags kernel -exec "$PWD/bin/kerneltest" ./daemon/internal/kernel/...
//
// or, built once and run many times:
//
//	go test -c -tags kernel -o /tmp/kernel.test ./daemon/internal/kernel
//	bin/kerneltest /tmp/kernel.test -test.v -test.run TestIPVLAN
//
// With -kernel qemu the guest has two physical functions, pf0 and pf1, which are up and connected
// with each other, and seven virtual functions of each. The program finds those by PCI address, below
// /sys/class/net/pf0/device/virtfn0 and so on. It may load any module with modprobe:
//
//	go test -tags sriov -exec "$PWD/bin/kerneltest -kernel qemu" ./test/lab/qemu
//
// Each call boots a guest (a quarter of a second; three seconds with the fallback kernel;
// about 15 seconds of processor time in QEMU); calls may run side by side. It needs root for
// nothing but reading the files that only root can read.
// Programs with the race detector do not run in User-Mode Linux: the guest's address space (39
// bits) is too small for it.
package main
