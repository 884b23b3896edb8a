// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// Socket is one TCP socket of a process.
type Socket struct {
	Local, Remote netip.AddrPort
	Listening     bool
}

// Sockets lists the TCP sockets of a process.
func Sockets(id process.ID) ([]Socket, error) {
	own, err := inodes(id)
	if err != nil {
		return nil, err
	}
	var found []Socket
	for _, table := range []string{"tcp", "tcp6"} {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", id.PID, table))
		if err != nil {
			return nil, fmt.Errorf("list sockets: %w", err)
		}
		for line := range strings.Lines(string(raw)) {
			const local, remote, state, inode = 1, 2, 3, 9 // see proc_net_tcp
			fields := strings.Fields(line)
			if len(fields) <= inode || !slices.Contains(own, "socket:["+fields[inode]+"]") {
				continue
			}
			s := Socket{Listening: fields[state] == "0A"}
			if s.Local, err = address(fields[local]); err != nil {
				return nil, err
			}
			if s.Remote, err = address(fields[remote]); err != nil {
				return nil, err
			}
			found = append(found, s)
		}
	}
	return found, nil
}

// inodes are what the descriptors of a process lead to.
func inodes(id process.ID) ([]string, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", id.PID))
	if err != nil {
		return nil, fmt.Errorf("list descriptors: %w", err)
	}
	var found []string
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil { // else it is closed meanwhile
			found = append(found, target)
		}
	}
	return found, nil
}

// address reads the kernel's form: words of 32 bits in the order of the machine.
func address(text string) (netip.AddrPort, error) {
	ip, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(ip)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read address %q: %w", text, err)
	}
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read address %q: %w", text, err)
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	found, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("read address %q: it has %d bytes", text, len(raw))
	}
	return netip.AddrPortFrom(found.Unmap(), uint16(number)), nil
}
