// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-cni/patchbay/cni/config"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/internal/heartbeat"
	"github.com/patchbay-cni/patchbay/internal/pending"
)

// invocation is a command with its configuration.
type invocation struct {
	*Process
	req    *wire.Request
	config *config.Config
}

// add waits for an unavailable daemon. After the timeout the runtime and kubelet try again. A
// repeated ADD is safe: the daemon returns the same answer.
func (i *invocation) add(ctx context.Context) (any, error) {
	deadline := time.Now().Add(i.AddWait)
	for {
		res, err := i.call(ctx, requestTimeout)
		if !isUnavailable(err) {
			return addResult(res, err)
		}
		if time.Now().After(deadline) || !sleep(ctx, pollInterval) {
			return nil, &wire.Error{
				Code: wire.CodeTryAgain, Msg: fmt.Sprintf("node daemon was unavailable for %v; try again later", i.AddWait),
				Details: err.Error(),
			}
		}
	}
}

// pollInterval is the time between two requests to an unavailable daemon.
const pollInterval = 50 * time.Millisecond

// sleep waits, and reports whether ctx lasted.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// addResult returns the answer of ADD.
func addResult(res *wire.Response, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if len(res.Result) == 0 {
		return nil, wire.Errorf(wire.CodeIO, "node daemon returned no result of ADD")
	}
	return res.Result, nil
}

// del succeeds when the daemon has handled the DEL, or when it is recorded on disk for the daemon:
// runtimes must be able to delete sandboxes during an upgrade of the daemon.
func (i *invocation) del(ctx context.Context) (any, error) {
	_, err := i.call(ctx, requestTimeout)
	if !isUnavailable(err) {
		return nil, err
	}
	if failed := pending.Write(i.PendingDir, i.req); failed != nil {
		return nil, &wire.Error{
			Code: wire.CodeTryAgain, Msg: "node daemon is unavailable and DEL could not be recorded; try again later",
			Details: errors.Join(failed, err).Error(),
		}
	}
	return nil, nil
}

// status asks the daemon. If it is unavailable or busy, status uses its heartbeat, so that nodes do
// not become NotReady during a rollout.
func (i *invocation) status(ctx context.Context) (any, error) {
	_, err := i.call(ctx, i.StatusTimeout)
	if err == nil || !isUnavailable(err) && !isTryAgain(err) {
		return nil, err
	}
	age, unknown := heartbeat.Age(wire.HeartbeatPath(i.config.Socket))
	if unknown == nil && age <= heartbeatMaxAge {
		return nil, nil
	}
	e := &wire.Error{Code: wire.CodeNotAvailable, Details: errors.Join(unknown, err).Error()}
	e.Msg = "node daemon is unavailable and has written no heartbeat since the machine started"
	if unknown == nil {
		e.Msg = fmt.Sprintf("node daemon is unavailable: its last heartbeat is %v old", age.Round(time.Second))
	}
	return nil, e
}

// isTryAgain reports whether the error has the CNI code "try again later".
func isTryAgain(err error) bool {
	e := (*wire.Error)(nil)
	return errors.As(err, &e) && e.Code == wire.CodeTryAgain
}

// notImplemented is for commands that are not implemented. Success would mean that interfaces were
// checked or leaks removed.
func (i *invocation) notImplemented(context.Context) (any, error) {
	return nil, wire.Errorf(wire.CodeNotImplemented, "%s is not implemented yet; nothing was checked or changed", i.req.Command)
}

// call sends the request once. The error is the daemon's, wraps wire.ErrUnavailable, or is an error
// of the socket.
func (i *invocation) call(ctx context.Context, timeout time.Duration) (*wire.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	res, err := wire.Call(ctx, i.config.Socket, i.req)
	switch {
	case isUnavailable(err):
		return nil, err
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &wire.Error{
			Code: wire.CodeTryAgain, Msg: fmt.Sprintf("node daemon did not answer within %v; try again later", timeout),
			Details: err.Error(),
		}
	case err != nil:
		return nil, wire.Errorf(wire.CodeIO, "send request to node daemon: %w", err)
	case res.Error != nil:
		return nil, res.Error
	}
	return res, nil
}

// isUnavailable reports whether no daemon answered: another attempt can succeed.
func isUnavailable(err error) bool { return errors.Is(err, wire.ErrUnavailable) }
