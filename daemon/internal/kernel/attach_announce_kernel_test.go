// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A new slave announces its addresses, which updates the neighbour tables of peers.
func TestAnnouncements(t *testing.T) {
	for _, kind := range []string{MACVLAN, IPVLAN} {
		t.Run(kind, func(t *testing.T) {
			needs(t, kind)
			host, wire := newHost(t, 1500)
			k := openKernel(t, host)
			frames := capture(t, wire, "port1")
			s := withDefaults(Slave{PodInterface: PodInterface{V4: prefix("10.0.0.5/24"), V6: prefix("fd00::5/64")}, Kind: kind}, newNamespace(t))
			out, err := k.Slaves().Attach(context.Background(), s)
			if err != nil {
				t.Fatal(err)
			}
			m, err := net.ParseMAC(out.MAC)
			if err != nil {
				t.Fatal(err)
			}
			missing := map[string]func(frame []byte) bool{
				"gratuitous ARP":                      func(f []byte) bool { return gratuitousARP(f, m, s.V4.Addr()) },
				"unsolicited neighbour advertisement": func(f []byte) bool { return unsolicitedNA(f, m, s.V6.Addr()) },
			}
			deadline := time.After(time.Minute)
			for len(missing) > 0 {
				select {
				case f := <-frames:
					for name, matches := range missing {
						if matches(f) {
							delete(missing, name)
						}
					}
				case <-deadline:
					t.Fatalf("not seen on the wire: %v", missing)
				}
			}
		})
	}
}

// gratuitousARP reports whether the frame is a broadcast request with equal sender and target
// addresses (RFC 5227, 3).
func gratuitousARP(f []byte, mac net.HardwareAddr, a netip.Addr) bool {
	ip := a.AsSlice()
	return len(f) >= 42 && bytes.Equal(f[:6], []byte{255, 255, 255, 255, 255, 255}) && f[12] == 0x08 && f[13] == 0x06 &&
		bytes.Equal(f[22:28], mac) && bytes.Equal(f[28:32], ip) && bytes.Equal(f[38:42], ip)
}

// unsolicitedNA reports whether the frame is an advertisement to all nodes with the address and its
// MAC (RFC 4861, 7.2.6).
func unsolicitedNA(f []byte, mac net.HardwareAddr, a netip.Addr) bool {
	const icmp = 14 + 40
	return len(f) >= icmp+32 && f[12] == 0x86 && f[13] == 0xdd && f[20] == unix.IPPROTO_ICMPV6 && f[icmp] == 136 &&
		bytes.Equal(f[38:54], net.ParseIP("ff02::1")) && bytes.Equal(f[icmp+8:icmp+24], a.AsSlice()) &&
		bytes.Equal(f[icmp+26:icmp+32], mac)
}

// capture returns the frames that a link receives.
func capture(t *testing.T, path, name string) <-chan []byte {
	t.Helper()
	fd := -1
	inside(t, path, func() {
		var err error
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
		must(t, err)
		ifc, err := net.InterfaceByName(name)
		must(t, err)
		must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: ifc.Index}))
		must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	})
	frames, done, ended := make(chan []byte, 1000), make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(done); <-ended })
	go func() {
		defer close(ended)
		defer unix.Close(fd)
		for {
			select {
			case <-done:
				return
			default:
			}
			buf := make([]byte, 2000)
			if n, err := unix.Read(fd, buf); err == nil {
				select {
				case frames <- buf[:n]:
				case <-done:
					return
				}
			}
		}
	}()
	return frames
}
