// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Dial dials from within a namespace. A socket belongs to the namespace of the
// thread that makes it, wherever that thread goes later.
func Dial(ctx context.Context, name string, dialer net.Dialer, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := Do(name, func() (err error) {
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Do calls fn on a thread of its own in a namespace. What fn starts on other
// goroutines runs elsewhere.
func Do(name string, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		back, err := enter(name)
		if err != nil {
			done <- err
			return
		}
		err = fn()
		// A thread that cannot go back stays locked and so dies with this goroutine.
		if back() == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// enter moves the calling thread; what it returns moves it back.
func enter(name string) (back func() error, err error) {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open own network namespace: %w", err)
	}
	there, err := os.Open(Path(name))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open network namespace: %w", err), home.Close())
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, errors.Join(fmt.Errorf("enter network namespace %s: %w", name, err), home.Close())
	}
	return func() error {
		defer home.Close()
		return unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)
	}, nil
}
