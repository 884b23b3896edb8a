// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-cni/patchbay/cni/alive"
	"github.com/patchbay-cni/patchbay/cni/conf"
	"github.com/patchbay-cni/patchbay/cni/pending"
	"github.com/patchbay-cni/patchbay/cni/wire"
)

// commandFunc does one CNI command; its answer is printed, nil is nothing.
type commandFunc func(*invocation, context.Context) (any, error)

func commands() map[string]commandFunc {
	return map[string]commandFunc{
		"ADD": (*invocation).add, "DEL": (*invocation).del, "STATUS": (*invocation).status,
		"CHECK": (*invocation).notImplemented, "GC": (*invocation).notImplemented,
	}
}

// invocation is one command with its configuration.
type invocation struct {
	*Process
	req  *wire.Request
	conf *conf.Config
}

// add waits for a daemon that is away; after that the runtime, then kubelet,
// try again. A repeated ADD is safe: the daemon answers as it did before.
func (i *invocation) add(ctx context.Context) (any, error) {
	deadline := time.Now().Add(i.AddWait)
	for {
		res, err := i.call(ctx, RequestTimeout)
		if !isUnavailable(err) {
			return addResult(res, err)
		}
		if time.Now().After(deadline) || !sleep(ctx, pollInterval) {
			return nil, &wire.Error{
				Code: wire.CodeTryAgain, Msg: fmt.Sprintf("node daemon did not answer within %v; try again later", i.AddWait),
				Details: err.Error(),
			}
		}
	}
}

// pollInterval is the time between two looks for the daemon.
const pollInterval = 50 * time.Millisecond

// sleep waits, and says whether it could wait to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// addResult is what ADD prints.
func addResult(res *wire.Response, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if len(res.Result) == 0 {
		return nil, wire.Errorf(wire.CodeIO, "node daemon answered ADD without a result")
	}
	return res.Result, nil
}

// del answers OK when the daemon has done it, or when the disk holds it for
// the daemon: the sandbox must be able to go while the daemon is upgraded.
func (i *invocation) del(ctx context.Context) (any, error) {
	_, err := i.call(ctx, RequestTimeout)
	if !isUnavailable(err) {
		return nil, err
	}
	if failed := pending.Write(i.PendingDir, i.req); failed != nil {
		return nil, &wire.Error{
			Code: wire.CodeTryAgain, Msg: "node daemon is away and DEL could not be recorded; try again later",
			Details: errors.Join(failed, err).Error(),
		}
	}
	return nil, nil
}

// status asks the daemon; while it is away or busy its heartbeat counts, so
// that a rollout does not turn nodes NotReady one after the other.
func (i *invocation) status(ctx context.Context) (any, error) {
	_, err := i.call(ctx, i.StatusTimeout)
	if err == nil || !isUnavailable(err) && !isTryAgain(err) {
		return nil, err
	}
	age, unknown := alive.Age(wire.HeartbeatPath(i.conf.Socket))
	if unknown == nil && age <= HeartbeatMaxAge {
		return nil, nil
	}
	e := &wire.Error{Code: wire.CodeNotAvailable, Details: errors.Join(unknown, err).Error()}
	e.Msg = "node daemon is away and was not seen alive since the machine started"
	if unknown == nil {
		e.Msg = fmt.Sprintf("node daemon is away, last seen alive %v ago", age.Round(time.Second))
	}
	return nil, e
}

// isTryAgain reports whether the error says to try again later.
func isTryAgain(err error) bool {
	e := (*wire.Error)(nil)
	return errors.As(err, &e) && e.Code == wire.CodeTryAgain
}

// notImplemented answers for commands that are to come. An error is honest: a runtime
// that is told OK would believe that interfaces were compared or leaks removed.
func (i *invocation) notImplemented(context.Context) (any, error) {
	return nil, wire.Errorf(wire.CodeNotImplemented, "%s is not implemented yet; nothing was looked at or changed", i.req.Command)
}

// call sends the request once. Its error is the daemon's, wire.ErrAway, or says
// what is wrong with the socket.
func (i *invocation) call(ctx context.Context, most time.Duration) (*wire.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	res, err := wire.Call(ctx, i.conf.Socket, i.req)
	switch {
	case isUnavailable(err):
		return nil, err
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &wire.Error{
			Code: wire.CodeTryAgain, Msg: fmt.Sprintf("node daemon did not answer within %v; try again later", most),
			Details: err.Error(),
		}
	case err != nil:
		return nil, wire.Errorf(wire.CodeIO, "ask node daemon: %w", err)
	case res.Error != nil:
		return nil, res.Error
	}
	return res, nil
}

// isUnavailable reports whether waiting, or another daemon, would help.
func isUnavailable(err error) bool { return errors.Is(err, wire.ErrUnavailable) }
