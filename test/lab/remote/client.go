// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

// Errors of Run.
var (
	// ErrNotStarted says that the command could not be started.
	ErrNotStarted = errors.New("command not started")
	// ErrLost says that the connection ended before the command did.
	ErrLost = errors.New("connection lost")
)

// Streams are the command's input and outputs; each may be nil.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Run runs a command at the other end of the connection and returns its exit code. It
// closes the connection. The end of ctx ends the command.
func Run(ctx context.Context, conn net.Conn, r Request, s Streams) (int, error) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	code, err := run(conn, r, s)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return -1, fmt.Errorf("run %s remotely: %w", r.Args, err)
	}
	return code, nil
}

func run(conn net.Conn, r Request, s Streams) (int, error) {
	out := &frames{out: conn}
	if err := out.writeJSON(kindRequest, r); err != nil {
		return 0, err
	}
	// Input may block for ever, as a terminal does, while the command ends.
	go sendInput(out, s.In)
	for {
		k, data, err := readFrame(conn)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrLost, err)
		}
		switch k {
		case kindOutput:
			err = writeOutput(s.Out, data)
		case kindErrorOutput:
			err = writeOutput(s.Err, data)
		case kindExit:
			return parseExit(data)
		default:
			err = fmt.Errorf("frame of kind %d: %w", k, ErrProtocol)
		}
		if err != nil {
			return 0, err
		}
	}
}

func sendInput(out *frames, in io.Reader) {
	if in != nil {
		if _, err := io.Copy(stream{out, kindInput}, in); err != nil {
			return // the reading side sees why
		}
	}
	_ = out.write(kindInputEnd, nil)
}

func writeOutput(w io.Writer, data []byte) error {
	if w == nil {
		return nil
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("pass output on: %w", err)
	}
	return nil
}

func parseExit(data []byte) (int, error) {
	var e exitStatus
	if err := json.Unmarshal(data, &e); err != nil {
		return 0, fmt.Errorf("decode exit: %w", err)
	}
	if e.NotStarted != "" {
		return 0, fmt.Errorf("%w: %s", ErrNotStarted, e.NotStarted)
	}
	return e.Code, nil
}
