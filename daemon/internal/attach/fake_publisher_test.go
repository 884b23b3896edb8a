// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// Publish implements attach.Publisher: it keeps the key, and reads the record
// when it works.
func (l *life) Publish(rec *attach.Record) { l.enqueue("Publish", rec) }

// Release implements attach.Publisher.
func (l *life) Release(rec *attach.Record) { l.enqueue("Release", rec) }

func (l *life) enqueue(name string, rec *attach.Record) {
	_ = l.call(context.Background(), name, func() error {
		l.queue = append(l.queue, key(rec.ContainerID, rec.IfName))
		return nil
	})
}

// drain does what the Publisher has to do, with a call per write.
func (l *life) drain() {
	for {
		l.w.mu.Lock()
		if l.dead || len(l.queue) == 0 {
			l.w.mu.Unlock()
			return
		}
		k := l.queue[0]
		l.queue = l.queue[1:]
		data := l.w.records[k]
		l.w.mu.Unlock()
		if data == nil {
			continue
		}
		switch rec := decode(data); rec.State {
		case attach.Attached:
			l.publish(k, rec)
		case attach.Released:
			l.release(k, rec)
		}
	}
}

func (l *life) publish(k string, rec *attach.Record) {
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		err := l.call(context.Background(), "create DanmEp", func() error {
			l.w.endpoints[ifc.EndpointName] = []netip.Addr{ifc.V4.Addr(), ifc.V6.Addr()}
			ifc.EndpointUID = "uid"
			return nil
		})
		if err != nil {
			return // until the next start
		}
	}
	_ = l.call(context.Background(), "Journal.Update", func() error {
		if now := decode(l.w.records[k]); now.State == attach.Attached {
			l.w.records[k], _ = json.Marshal(rec)
		}
		return nil
	})
}

func (l *life) release(k string, rec *attach.Record) {
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		err := l.call(context.Background(), "delete DanmEp", func() error {
			delete(l.w.endpoints, ifc.EndpointName)
			return nil
		})
		if err != nil {
			return // until the next start
		}
	}
	_ = l.call(context.Background(), "forget", func() error {
		for i := range rec.Interfaces {
			delete(l.w.held, rec.Interfaces[i].V4.Addr())
			delete(l.w.held, rec.Interfaces[i].V6.Addr())
		}
		delete(l.w.records, k)
		return nil
	})
}

// published are the names of the DanmEps.
func (w *world) published() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for name := range w.endpoints {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// mustStart starts a daemon without faults.
func (w *world) mustStart(tb testing.TB) *life {
	tb.Helper()
	l, err := w.start(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}
