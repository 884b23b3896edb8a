// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net"
	"time"

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
	defer c.closeWhenOff(conn)()
	return remote.Run(ctx, conn, r, s)
}

// dial connects. The keep-alive is for a node that was off for a moment: its new kernel
// refuses what it does not know.
func (c Config) dial(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{
		Timeout:         10 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 100},
	}
	return netns.Dial(ctx, c.Fabric.Netns, dialer, "tcp", c.agentAddress())
}

// closeWhenOff ends the connection when the node loses its power, until stop. No time
// tells that: on a busy machine a node may be silent, or take no input, for long.
func (c Config) closeWhenOff(conn net.Conn) (stop func()) {
	const pause = 2 * time.Second
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(pause):
			}
			if !On(c.Dir) {
				_ = conn.Close()
				return
			}
		}
	}()
	return func() { close(done) }
}
