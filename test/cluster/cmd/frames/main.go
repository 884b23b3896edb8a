// SPDX-License-Identifier: Apache-2.0

// Frames sends what an attacker inside a Pod would: any Ethernet frame on an interface,
// for which it needs CAP_NET_RAW, or any UDP payload, for which it needs nothing.
//
//	frames raw INTERFACE HEX...
//	frames udp ADDRESS:PORT HEX...
package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "frames:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: frames raw INTERFACE HEX or frames udp ADDRESS:PORT HEX, with any number of HEX")
	}
	send, err := sender(args[0], args[1])
	if err != nil {
		return err
	}
	for _, text := range args[2:] {
		payload, err := hex.DecodeString(text)
		if err != nil {
			return fmt.Errorf("decode %q: %w", text, err)
		}
		if err := send(payload); err != nil {
			return fmt.Errorf("send %d bytes to %s: %w", len(payload), args[1], err)
		}
	}
	return nil
}

// sender opens a socket and returns how to send on it.
func sender(kind, target string) (func([]byte) error, error) {
	switch kind {
	case "udp":
		conn, err := net.Dial("udp", target)
		if err != nil {
			return nil, fmt.Errorf("open socket: %w", err)
		}
		return func(payload []byte) error { _, err := conn.Write(payload); return err }, nil
	case "raw":
		link, err := net.InterfaceByName(target)
		if err != nil {
			return nil, fmt.Errorf("find interface %s: %w", target, err)
		}
		// Protocol 0: the socket receives nothing (packet(7)).
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open packet socket: %w", err)
		}
		return func(frame []byte) error {
			err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Index})
			if errors.Is(err, unix.ENOBUFS) {
				return nil // sent, and dropped by a filter below
			}
			return err
		}, nil
	}
	return nil, fmt.Errorf("%q is neither raw nor udp", kind)
}
