// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// replyTimeout is far above what a kernel under load takes for one message;
	// without it a lost reply would hold the parent's lock for ever.
	replyTimeout = 60 * time.Second
	// dumpTries bounds how often an interrupted list is read again.
	dumpTries = 10
)

// conn is one route netlink socket. Requests on it wait for each other, as they
// would for the kernel's RTNL lock.
type conn struct {
	sock    *nl.NetlinkSocket
	sockets map[int]*nl.SocketHandle
	// observe, when not nil, is told of the type of each request.
	observe func(kind int)
}

// dial opens a socket in the calling thread's namespace.
func dial() (*conn, error) {
	sock, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	timeout := unix.NsecToTimeval(replyTimeout.Nanoseconds())
	// Extended acknowledgements carry the kernel's own words in errors.
	if err := errors.Join(sock.SetReceiveTimeout(&timeout), sock.SetExtAck(true)); err != nil {
		sock.Close()
		return nil, fmt.Errorf("set up a netlink socket: %w", err)
	}
	return &conn{sock: sock, sockets: map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: sock}}}, nil
}

// dial opens a socket in ns, whichever namespace the caller is in.
func (ns *namespace) dial() (c *conn, err error) {
	err = ns.inside(func() error {
		c, err = dial()
		return err
	})
	return c, err
}

func (c *conn) close() { c.sock.Close() }

// send waits for the kernel's acknowledgement.
func (c *conn) send(kind, flags int, data ...nl.NetlinkRequestData) error {
	_, err := c.ask(kind, flags|unix.NLM_F_ACK, data...)
	return err
}

// ask returns the messages that the kernel answers with.
func (c *conn) ask(kind, flags int, data ...nl.NetlinkRequestData) ([][]byte, error) {
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = c.sockets
	for _, d := range data {
		req.AddData(d)
	}
	if c.observe != nil {
		c.observe(kind)
	}
	return req.Execute(unix.NETLINK_ROUTE, 0)
}

// list dumps, and dumps again when a change in between made the list
// inconsistent (NLM_F_DUMP_INTR) or a signal came.
func (c *conn) list(kind int, data ...nl.NetlinkRequestData) ([][]byte, error) {
	var err error
	for range dumpTries {
		var msgs [][]byte
		msgs, err = c.ask(kind, unix.NLM_F_DUMP, data...)
		if err == nil {
			return msgs, nil
		}
		if !errors.Is(err, nl.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("list was interrupted %d times: %w", dumpTries, err)
}
