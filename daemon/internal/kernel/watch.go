// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// watchLinks calls changed with the name of each host link that appears or disappears, that loses a
// filter, or whose name, alias, MTU, master, addresses, carrier or up flag changes, until ctx
// ends. It ignores other events, such as those of a parent whose slaves come and go.
func watchLinks(ctx context.Context, ns *netNamespace, changed func(link string)) error {
	sock, err := subscribe(ns)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, sock.Close)
	defer func() {
		if stop() {
			sock.Close()
		}
	}()
	w := &linkWatcher{known: map[int]linkFingerprint{}, changed: changed}
	changed("") // links may have changed before the subscription
	for {
		msgs, _, err := sock.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			w.known = map[int]linkFingerprint{}
			changed("")
		case err != nil:
			return fmt.Errorf("receive link events: %w", err)
		}
		for i := range msgs {
			w.handleMessage(&msgs[i])
		}
	}
}

// eventBufferSize is in bytes. It holds some thousand events, as a burst of Pods causes.
const eventBufferSize = 1 << 20

func subscribe(ns *netNamespace) (sock *nl.NetlinkSocket, err error) {
	err = ns.do(func() error {
		sock, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_TC)
		if err != nil {
			return fmt.Errorf("subscribe to link events: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := sock.SetReceiveBufferSize(eventBufferSize, true); err != nil {
		sock.Close()
		return nil, fmt.Errorf("set the buffer of link events: %w", err)
	}
	return sock, nil
}

// linkFingerprint has the attributes of a link whose changes matter.
type linkFingerprint struct {
	name, alias string
	mtu, master int
	up, carrier bool
}

// linkWatcher filters link events by the links' known attributes.
type linkWatcher struct {
	known   map[int]linkFingerprint
	changed func(string)
}

func (w *linkWatcher) handleMessage(m *syscall.NetlinkMessage) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg || m.Data[0] != unix.AF_UNSPEC {
			return // an event about a bridge's port, not about the link
		}
		link, err := netlink.LinkDeserialize(nil, m.Data)
		if err != nil {
			w.changed("")
			return
		}
		w.handleLink(link.Attrs(), m.Header.Type == unix.RTM_DELLINK)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if len(m.Data) < unix.SizeofIfAddrmsg {
			return
		}
		// An unknown link has the name "", which stands for any link.
		w.changed(w.known[int(nl.DeserializeIfAddrmsg(m.Data).Index)].name)
	case unix.RTM_DELTFILTER, unix.RTM_DELQDISC:
		if len(m.Data) >= nl.SizeofTcMsg {
			w.changed(w.known[int(nl.DeserializeTcMsg(m.Data).Ifindex)].name)
		}
	}
}

func (w *linkWatcher) handleLink(a *netlink.LinkAttrs, gone bool) {
	old := w.known[a.Index]
	now := linkFingerprint{
		name: a.Name, alias: a.Alias, mtu: a.MTU, master: a.MasterIndex,
		up: a.RawFlags&unix.IFF_UP != 0, carrier: a.RawFlags&unix.IFF_LOWER_UP != 0,
	}
	if gone {
		delete(w.known, a.Index)
	} else {
		w.known[a.Index] = now
	}
	if !gone && old == now {
		return
	}
	w.changed(now.name)
	if old.name != "" && old.name != now.name {
		w.changed(old.name)
	}
}
