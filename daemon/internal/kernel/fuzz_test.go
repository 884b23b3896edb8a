// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"testing"

	"golang.org/x/sys/unix"
)

// The parsers of kernel messages return errors or nothing for truncated messages and invalid lengths,
// and do not panic.
func FuzzDecode(f *testing.F) {
	address := append(make([]byte, unix.SizeofIfAddrmsg), 8, 0, unix.IFA_LOCAL, 0, 192, 0, 2, 1)
	f.Add(address)
	f.Add(address[:len(address)-1])
	f.Add(address[:5])
	// The last attribute's length is not a multiple of 4.
	f.Add(append(make([]byte, unix.SizeofIfAddrmsg), 5, 0, unix.IFA_LOCAL, 0, 1))
	f.Add(append(make([]byte, unix.SizeofIfInfomsg), 5, 0, unix.IFLA_AF_SPEC, 0, 1))
	f.Add(append(make([]byte, unix.SizeofIfInfomsg), 12, 0, unix.IFLA_AF_SPEC, 0, 8, 0, unix.AF_INET6, 0, 5, 0, unix.IFLA_INET6_ADDR_GEN_MODE, 0))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, m []byte) {
		if a, err := parseAddress(m); err == nil && a.IsValid() && a.Masked().Addr().Is4() != a.Addr().Is4() {
			t.Errorf("%x: %s", m, a)
		}
		ipv6Disabled(m)
	})
}
