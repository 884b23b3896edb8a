// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Agent is a remote.Server behind a network card of its own, in a network namespace
// that the rest of the guest does not see: it works whatever happens to the other
// cards, and nobody mistakes its card for one of the node's.
type Agent struct {
	// Card is the card's name, one of Spec.Cards.
	Card string `json:"card"`
	// Prefix is its address with the prefix length; Port is TCP.
	Prefix netip.Prefix `json:"prefix"`
	Port   uint16       `json:"port"`
}

// listen moves the agent's card into a new network namespace and listens there. The
// thread that is in that namespace sleeps for ever, which keeps the namespace.
func (a Agent) listen() (net.Listener, error) {
	type outcome struct {
		listener net.Listener
		err      error
	}
	done := make(chan outcome)
	enter, entered := make(chan struct{}), make(chan int)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		entered <- unix.Gettid()
		if err != nil {
			done <- outcome{err: fmt.Errorf("make agent's network namespace: %w", err)}
			return
		}
		<-enter
		l, err := a.listenHere()
		done <- outcome{l, err}
		select {}
	}()
	thread := <-entered
	// ip(8) takes any task's number for its namespace, a thread's too.
	err := command([]string{"/sbin/ip", "link", "set", a.Card, "netns", strconv.Itoa(thread)}, nil)
	close(enter)
	o := <-done
	if err != nil {
		return nil, err
	}
	return o.listener, o.err
}

// listenHere runs on the thread in the namespace, and so do its children.
func (a Agent) listenHere() (net.Listener, error) {
	cmd := exec.Command("/sbin/ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join([]string{
		"link set lo up",
		"address add " + a.Prefix.String() + " dev " + a.Card,
		"link set " + a.Card + " up",
	}, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("set up agent's card: %w: %s", err, out)
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(a.Prefix.Addr(), a.Port).String())
	if err != nil {
		return nil, fmt.Errorf("listen for commands: %w", err)
	}
	return l, nil
}
