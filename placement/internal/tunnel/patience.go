// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// patience bounds how long the client of a stream may take nothing. It does not bound how long a stream is silent.
type patience struct {
	timeout     time.Duration
	setDeadline func(time.Time) error
	ended       atomic.Bool // a write has waited for longer
}

// write runs a write to the client.
func (p *patience) write(data func() (int, error)) (int, error) {
	began := time.Now()
	_ = p.setDeadline(began.Add(p.timeout))
	n, err := data()
	if err != nil {
		if time.Since(began) >= p.timeout {
			p.ended.Store(true)
		}
		return n, err
	}
	_ = p.setDeadline(time.Time{})
	return n, nil
}

// patientAnswer is an answer to a client.
type patientAnswer struct {
	http.ResponseWriter

	client *patience
}

// Write implements http.ResponseWriter.
func (w *patientAnswer) Write(p []byte) (int, error) {
	return w.client.write(func() (int, error) { return w.ResponseWriter.Write(p) })
}

// FlushError sends what Write has buffered; http.ResponseController calls it.
func (w *patientAnswer) FlushError() error {
	_, err := w.client.write(func() (int, error) { return 0, http.NewResponseController(w.ResponseWriter).Flush() })
	return err
}

// patientConn is the upgraded connection of a client.
type patientConn struct {
	net.Conn

	client *patience
}

// Write implements net.Conn.
func (c *patientConn) Write(p []byte) (int, error) {
	return c.client.write(func() (int, error) { return c.Conn.Write(p) })
}
