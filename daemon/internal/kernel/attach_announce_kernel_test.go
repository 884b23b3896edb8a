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

// New owners of an address say so on the wire: peers forget the one before.
func TestAnnouncements(t *testing.T) {
	for _, kind := range []string{MACVLAN, IPVLAN} {
		t.Run(kind, func(t *testing.T) {
			needs(t, kind)
			host, wire := newHost(t, 1500)
			k := openKernel(t, host)
			frames := capture(t, wire, "port1")
			s := withDefaults(Slave{Kind: kind, V4: prefix("10.0.0.5/24"), V6: prefix("fd00::5/64")}, newNamespace(t))
			out, err := k.Attach(context.Background(), s)
			if err != nil {
				t.Fatal(err)
			}
			m, err := net.ParseMAC(out.MAC)
			if err != nil {
				t.Fatal(err)
			}
			wants := map[string]func(frame []byte) bool{
				"gratuitous ARP":                      func(f []byte) bool { return gratuitousARP(f, m, s.V4.Addr()) },
				"unsolicited neighbour advertisement": func(f []byte) bool { return unsolicitedNA(f, m, s.V6.Addr()) },
			}
			deadline := time.After(time.Minute)
			for len(wants) > 0 {
				select {
				case f := <-frames:
					for name, is := range wants {
						if is(f) {
							delete(wants, name)
						}
					}
				case <-deadline:
					t.Fatalf("not seen on the wire: %v", wants)
				}
			}
		})
	}
}

// gratuitousARP is a broadcast request in which sender and target are the same
// (RFC 5227, 3).
func gratuitousARP(f []byte, mac net.HardwareAddr, a netip.Addr) bool {
	ip := a.AsSlice()
	return len(f) >= 42 && bytes.Equal(f[:6], []byte{255, 255, 255, 255, 255, 255}) && f[12] == 0x08 && f[13] == 0x06 &&
		bytes.Equal(f[22:28], mac) && bytes.Equal(f[28:32], ip) && bytes.Equal(f[38:42], ip)
}

// unsolicitedNA goes to all nodes, with the address and its MAC (RFC 4861, 7.2.6).
func unsolicitedNA(f []byte, mac net.HardwareAddr, a netip.Addr) bool {
	const icmp = 14 + 40
	return len(f) >= icmp+32 && f[12] == 0x86 && f[13] == 0xdd && f[20] == unix.IPPROTO_ICMPV6 && f[icmp] == 136 &&
		bytes.Equal(f[38:54], net.ParseIP("ff02::1")) && bytes.Equal(f[icmp+8:icmp+24], a.AsSlice()) &&
		bytes.Equal(f[icmp+26:icmp+32], mac)
}

// capture hands over what comes in at a link.
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
