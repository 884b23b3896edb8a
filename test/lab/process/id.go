// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone says that the process has ended.
var ErrGone = errors.New("process is gone")

// ID names one process for as long as the machine is up. The zero ID names none.
type ID struct {
	PID int `json:"pid"`
	// Start is the time of start, in clock ticks since boot.
	Start uint64 `json:"start"`
}

// Alive tells whether the process runs. One that ended but was not reaped does not.
func (id ID) Alive() bool {
	start, state, err := readStat(id.PID)
	return err == nil && start == id.Start && state != 'Z' && state != 'X'
}

// Signal sends a signal; the error is ErrGone when the process has ended.
func (id ID) Signal(sig unix.Signal) error {
	fd, err := id.open()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return id.send(fd, sig)
}

// Kill ends the process at once and waits until it is gone. A process that is gone
// already is fine.
func (id ID) Kill(ctx context.Context) error {
	return id.signalAndWait(ctx, unix.SIGKILL)
}

// Stop asks the process to end, waits for at most grace, then kills it.
func (id ID) Stop(ctx context.Context, grace time.Duration) error {
	polite, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := id.signalAndWait(polite, unix.SIGTERM); err == nil || polite.Err() == nil {
		return err
	}
	return id.Kill(ctx)
}

// KillAll kills all processes that list returns, until it returns none.
func KillAll(ctx context.Context, list func() ([]ID, error)) error {
	const pause = 5 * time.Millisecond
	for {
		ids, err := list()
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if err := id.Kill(ctx); err != nil {
				return err
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Pause stops the process and returns once none of its threads runs any more: SIGSTOP
// reaches each of them on its own, and one that computes goes on until then.
func (id ID) Pause(ctx context.Context) error {
	if err := id.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		stopped, err := id.stopped()
		if stopped || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for process %d to stop: %w", id.PID, ctx.Err())
		case <-ticker.C:
		}
	}
}

// Wait returns when the process is gone.
func (id ID) Wait(ctx context.Context) error {
	fd, err := id.open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return id.wait(ctx, fd)
}

func (id ID) signalAndWait(ctx context.Context, sig unix.Signal) error {
	fd, err := id.open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := id.send(fd, sig); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return id.wait(ctx, fd)
}

// open returns a pidfd that certainly is this process's.
func (id ID) open() (int, error) {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if notLeader(err) || id.PID == 0 {
		return -1, fmt.Errorf("open process %d: %w", id.PID, ErrGone)
	}
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", id.PID, err)
	}
	if !id.Alive() {
		unix.Close(fd)
		return -1, fmt.Errorf("open process %d: %w", id.PID, ErrGone)
	}
	return fd, nil
}

// notLeader tells that no process has the number: nobody has, or a thread of another
// process, for which kernels have different words.
func notLeader(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL)
}

func (id ID) send(fd int, sig unix.Signal) error {
	err := unix.PidfdSendSignal(fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		err = ErrGone
	}
	if err != nil {
		return fmt.Errorf("send %s to process %d: %w", unix.SignalName(sig), id.PID, err)
	}
	return nil
}

// wait polls the pidfd, which turns readable when the process ends.
func (id ID) wait(ctx context.Context, fd int) error {
	const turnMillis = 50 // how late a cancelled context may be noticed
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, turnMillis)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", id.PID, err)
		}
		if n > 0 {
			return nil
		}
	}
	return fmt.Errorf("wait for process %d: %w", id.PID, ctx.Err())
}
