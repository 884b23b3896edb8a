// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Times that a hub which was killed just now may still keep port and folder.
const (
	portPatience = 5 * time.Second
	lockPatience = 10 * time.Second
)

// Check refuses what can be seen to be wrong from the flags alone.
func (c Config) Check() error {
	switch {
	case c.Address == nil || c.Address.IsUnspecified():
		return errors.New("flag --address: want the IP address that agents dial the hub at, such as 192.0.2.10")
	case c.Port < 1 || c.Port > 65535:
		return fmt.Errorf("flag --port: got %d, want 1 to 65535", c.Port)
	case c.DataDir == "":
		return errors.New("flag --data-dir: want a folder for all that is stored")
	}
	for _, p := range programs(c) {
		if _, err := find(c.BinDir, p.name); err != nil {
			return fmt.Errorf("flag --bin-dir: %s is neither in %q nor in the PATH: "+
				"give the folder that has it (`make packages kubernetes` puts them into bin/kubernetes and the PATH)", p.name, c.BinDir)
		}
	}
	return nil
}

// free makes sure that the API server can listen where it is to.
func (c Config) free(ctx context.Context) error {
	address := net.JoinHostPort(c.listen().String(), strconv.Itoa(c.Port))
	for end := time.Now().Add(portPatience); ; pause(ctx) {
		l, err := net.Listen("tcp", address)
		switch {
		case err == nil:
			return l.Close()
		case errors.Is(err, syscall.EADDRINUSE) && ctx.Err() == nil && time.Now().Before(end):
		case errors.Is(err, syscall.EADDRINUSE):
			return fmt.Errorf("flag --port: %s is taken by somebody else: give a free port: %w", address, err)
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return fmt.Errorf("flag --listen (default: --address): %s is no address of this machine: give one that is: %w", c.listen(), err)
		default:
			return fmt.Errorf("flags --listen and --port: cannot listen on %s: %w", address, err)
		}
	}
}

// lock makes the folder and takes it. It is free again when this process has ended and all
// that it started, which have the file, too: a new etcd finds none of before.
func (c Config) lock(ctx context.Context) (*os.File, error) {
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("flag --data-dir: make the folder (give one that can be written): %w", err)
	}
	f, err := os.OpenFile(c.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("flag --data-dir: write in the folder (give one that can be written): %w", err)
	}
	for end := time.Now().Add(lockPatience); ; pause(ctx) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, c.sweep()
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("flag --data-dir: a hub runs on %s: end that, or give another folder: %w", c.DataDir, err), f.Close())
		}
	}
}

// pause is that between two looks.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(pollInterval):
	}
}

// sweep removes what an etcd that was killed leaves: a new one cannot listen there.
func (c Config) sweep() error {
	for _, name := range []string{etcdSocket, peerSocket} {
		if err := os.Remove(c.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove socket of another life: %w", err)
		}
	}
	return nil
}
