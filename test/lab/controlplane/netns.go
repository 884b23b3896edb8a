// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// dialIn dials from within a named network namespace. A socket belongs to the
// namespace of the thread that makes it, wherever that thread goes later.
func dialIn(ctx context.Context, netns, network, address string) (net.Conn, error) {
	type outcome struct {
		conn net.Conn
		err  error
	}
	dialled := make(chan outcome, 1)
	go func() {
		runtime.LockOSThread()
		back, err := enter(netns)
		if err != nil {
			dialled <- outcome{err: err}
			return
		}
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, network, address)
		// A thread that cannot go back stays locked and so dies with this goroutine.
		if back() == nil {
			runtime.UnlockOSThread()
		}
		dialled <- outcome{conn, err}
	}()
	o := <-dialled
	return o.conn, o.err
}

// enter moves the calling thread; what it returns moves it back.
func enter(netns string) (back func() error, err error) {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open own network namespace: %w", err)
	}
	there, err := os.Open("/run/netns/" + netns)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open network namespace: %w", err), home.Close())
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, errors.Join(fmt.Errorf("enter network namespace %s: %w", netns, err), home.Close())
	}
	return func() error {
		defer home.Close()
		return unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)
	}, nil
}
