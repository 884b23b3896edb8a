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

// Watch calls changed with the names of host links whose name, mark, MTU, master,
// addresses, carrier or up flag changed, which lost a filter, appeared or went, until ctx
// ends. Slaves that come and go make their parent speak as well, without a change that matters.
func (k *Kernel) Watch(ctx context.Context, changed func(link string)) error {
	sock, err := k.subscribe()
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
	changed("") // what happened before the subscription
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

// eventBufferSize holds some thousand events, which a burst of Pods makes.
const eventBufferSize = 1 << 20

func (k *Kernel) subscribe() (sock *nl.NetlinkSocket, err error) {
	err = k.hostNS.do(func() error {
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

// linkFingerprint is what matters of a link.
type linkFingerprint struct {
	name, alias string
	mtu, master int
	up, carrier bool
}

// linkWatcher tells changes that matter from those that do not.
type linkWatcher struct {
	known   map[int]linkFingerprint
	changed func(string)
}

func (w *linkWatcher) handleMessage(m *syscall.NetlinkMessage) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg || m.Data[0] != unix.AF_UNSPEC {
			return // a bridge speaks of its port, not of the link
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
		// A link that was never heard of may be any.
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
