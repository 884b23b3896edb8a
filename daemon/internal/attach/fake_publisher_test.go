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

// Publish implements attach.Publisher. It queues the key; runPublisher reads the record.
func (d *testDaemon) Publish(rec *attach.Record) { d.enqueue("Publish", rec) }

// Release implements attach.Publisher.
func (d *testDaemon) Release(rec *attach.Record) { d.enqueue("Release", rec) }

// enqueue queues the key of a record.
func (d *testDaemon) enqueue(name string, rec *attach.Record) {
	_ = d.call(context.Background(), name, func() error {
		d.queue = append(d.queue, key(rec.ContainerID, rec.IfName))
		return nil
	})
}

// runPublisher processes the queue, with one call per write.
func (d *testDaemon) runPublisher() {
	for {
		d.env.mu.Lock()
		if d.killed || len(d.queue) == 0 {
			d.env.mu.Unlock()
			return
		}
		k := d.queue[0]
		d.queue = d.queue[1:]
		data := d.env.records[k]
		d.env.mu.Unlock()
		if data == nil {
			continue
		}
		switch rec := decode(data); rec.State {
		case attach.Attached:
			d.publish(k, rec)
		case attach.Released:
			d.release(k, rec)
		}
	}
}

// publish creates the DanmEps of a record.
func (d *testDaemon) publish(k string, rec *attach.Record) {
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		err := d.call(context.Background(), "create DanmEp", func() error {
			d.env.endpoints[ifc.EndpointName] = []netip.Addr{ifc.V4.Addr(), ifc.V6.Addr()}
			ifc.EndpointUID = "uid"
			return nil
		})
		if err != nil {
			return // until the next start
		}
	}
	_ = d.call(context.Background(), "Journal.Update", func() error {
		if now := decode(d.env.records[k]); now.State == attach.Attached {
			d.env.records[k], _ = json.Marshal(rec)
		}
		return nil
	})
}

// release deletes the DanmEps, the addresses and the record of a sandbox.
func (d *testDaemon) release(k string, rec *attach.Record) {
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		err := d.call(context.Background(), "delete DanmEp", func() error {
			delete(d.env.endpoints, ifc.EndpointName)
			return nil
		})
		if err != nil {
			return // until the next start
		}
	}
	_ = d.call(context.Background(), "forget", func() error {
		for i := range rec.Interfaces {
			delete(d.env.claimed, rec.Interfaces[i].V4.Addr())
			delete(d.env.claimed, rec.Interfaces[i].V6.Addr())
		}
		delete(d.env.records, k)
		return nil
	})
}

// published returns the names of the DanmEps.
func (env *environment) published() []string {
	env.mu.Lock()
	defer env.mu.Unlock()
	var names []string
	for name := range env.endpoints {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// mustStart starts a daemon without faults, and fails the test on an error.
func (env *environment) mustStart(tb testing.TB) *testDaemon {
	tb.Helper()
	d, err := env.start(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}
