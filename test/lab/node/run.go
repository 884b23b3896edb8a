// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/test/lab/netns"
	"github.com/patchbay-cni/patchbay/test/lab/remote"
)

// Run runs a command in the node and returns its exit code.
func (c Config) Run(ctx context.Context, r remote.Request, s remote.Streams) (int, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		if !On(c.Dir) {
			return -1, fmt.Errorf("run %s on %s: %w", r.Args, c.Name, ErrOff)
		}
		return -1, fmt.Errorf("reach %s: %w", c.Name, err)
	}
	return remote.Run(ctx, conn, r, s)
}

// dial connects in such a way that the end of a node that lost its power is noticed.
func (c Config) dial(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{
		Timeout: 2 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 8,
		},
		Control: limitSilence,
	}
	return netns.Dial(ctx, c.Fabric.Netns, dialer, "tcp", c.agentAddress())
}

// limitSilence bounds how long sent data may go without an answer, which keep-alive
// does not: there are no probes while data is under way (tcp(7), TCP_USER_TIMEOUT).
func limitSilence(_, _ string, conn syscall.RawConn) error {
	const limit = 10 * time.Second
	var set error
	err := conn.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
	})
	return errors.Join(err, set)
}
