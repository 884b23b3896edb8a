// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// world is a model of everything that outlives a daemon: the API server's
// objects, the disk and the kernel. Lives of daemons work on it through ports.
type world struct {
	mu       sync.Mutex
	pods     map[string]*corev1.Pod
	networks map[network.Ref]*network.Network
	// invalid are networks that do not pass validation.
	invalid map[network.Ref]bool
	// held are addresses that nobody else may get: the bits in the bitmaps.
	held map[netip.Addr]bool
	// records is the journal, as JSON.
	records map[string][]byte
	// namespaces maps each network namespace to its links and their addresses.
	namespaces map[string]map[string][]netip.Addr
	// delegated is what another plugin keeps on the host, by sandbox and interface.
	delegated map[string]string
	// endpoints maps DanmEps to their addresses.
	endpoints map[string][]netip.Addr
	// events are those of Pods.
	events []string
	// machines are the MACs of other machines by their addresses; an address that is
	// in quarantine for them is held, too.
	machines    map[netip.Addr]net.HardwareAddr
	quarantined map[netip.Addr]bool
	// room is how many addresses may go into quarantine.
	room int
	// boot is the kernel's boot_id.
	boot int
}

// boots returns the boot ID.
func (w *world) bootID() string { return fmt.Sprintf("boot-%d", w.boot) }

// powerCut loses everything that is not on disk or in the API server.
func (w *world) powerCut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boot++
	clear(w.namespaces)
}

// rebuildHeld is what claims make of the node's entry after a restart: an
// address that neither the journal nor a DanmEp knows is free.
func (w *world) rebuildHeld() {
	clear(w.held)
	for _, data := range w.records {
		rec := decode(data)
		for i := range rec.Interfaces {
			w.hold(rec.Interfaces[i].V4.Addr(), rec.Interfaces[i].V6.Addr())
		}
	}
	for _, addresses := range w.endpoints {
		w.hold(addresses...)
	}
}

func (w *world) hold(addresses ...netip.Addr) {
	for _, a := range addresses {
		if a.IsValid() {
			w.held[a] = true
		}
	}
}

// left describes what is there besides Pods and networks, line by line.
func (w *world) left() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines []string
	for a := range w.held {
		if w.quarantined[a] {
			continue
		}
		lines = append(lines, "address "+a.String())
	}
	for key, data := range w.records {
		lines = append(lines, fmt.Sprintf("record %s %s", key, decode(data).State))
	}
	for ns, links := range w.namespaces {
		for name := range links {
			lines = append(lines, "link "+ns+" "+name)
		}
	}
	for key := range w.delegated {
		lines = append(lines, "delegated "+key)
	}
	for name := range w.endpoints {
		lines = append(lines, "endpoint "+name)
	}
	slices.Sort(lines)
	return lines
}

// mustBeEmpty fails the test when anything is left.
func (w *world) mustBeEmpty(tb testing.TB, when string) {
	tb.Helper()
	if diff := cmp.Diff([]string(nil), w.left()); diff != "" {
		tb.Fatalf("left %s: -want +got:\n%s", when, diff)
	}
}

// check holds what is true at any time: no address is on two links, none on a
// link is free, and no link is without a record.
func (w *world) check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	owners := map[netip.Addr]string{}
	recorded := map[string]bool{}
	for _, data := range w.records {
		rec := decode(data)
		for i := range rec.Interfaces {
			recorded[rec.Netns+" "+rec.Interfaces[i].Name] = true
		}
	}
	for _, ns := range slices.Sorted(maps.Keys(w.namespaces)) {
		for name, addresses := range w.namespaces[ns] {
			link := ns + " " + name
			if !recorded[link] {
				return fmt.Errorf("link %s has no record", link)
			}
			for _, a := range addresses {
				if other := owners[a]; other != "" {
					return fmt.Errorf("address %s is on %s and %s", a, other, link)
				}
				if !w.held[a] {
					return fmt.Errorf("address %s of %s is free", a, link)
				}
				owners[a] = link
			}
		}
	}
	return nil
}

// request is a runtime's for sandbox id of Pod ns/web.
func request(id string) attach.Request {
	return attach.Request{
		ContainerID: id, IfName: "eth0", Netns: "/run/netns/" + id, NetName: "patchbay",
		PodNamespace: "ns", PodName: "web", PodUID: "uid", CNIDir: "/etc/cni/net.d", Path: "/opt/cni/bin",
	}
}

// sandbox makes the namespace of a sandbox, as a runtime does before ADD.
func (w *world) sandbox(id string) attach.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	req := request(id)
	if w.namespaces[req.Netns] == nil {
		w.namespaces[req.Netns] = map[string][]netip.Addr{}
	}
	return req
}

// end removes the namespace of a sandbox, as a runtime does after DEL.
func (w *world) end(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.namespaces, request(id).Netns)
}

// errInjected is an injected fault; errDead is what a killed daemon's calls get.
var (
	errInjected = errors.New("injected")
	errDead     = errors.New("daemon is dead")
)

// fault hits one call of a port.
type fault struct {
	// after lets the call have its effect first: a lost answer.
	after bool
	// kill ends the daemon; else the call returns errInjected.
	kill bool
}

// life is one life of a daemon. It implements the ports.
type life struct {
	*attach.Service

	w *world
	// faults by the number of the call, from 1.
	faults map[int]fault
	// calls made; guarded by w.mu.
	calls []string
	dead  bool
	// queue is what the Publisher has still to do.
	queue []string
	// broken lets the delegate's results be none.
	broken bool
	// hook is called before each call, if set.
	hook func(ctx context.Context, call string)
}

// start starts a daemon and resumes.
func (w *world) start(faults map[int]fault) (*life, error) {
	l := &life{w: w, faults: faults}
	w.mu.Lock()
	w.rebuildHeld()
	boot := w.bootID()
	w.mu.Unlock()
	l.Service = attach.New(attach.Config{
		BootID: boot, KubeClient: l, Addresses: l, Journal: journal{l}, HostLinks: l, NetworkNamespaces: l, Publisher: l, Prober: l,
		Backends: map[string]attach.Backend{"ipvlan": backend{l}, "macvlan": backend{l}},
		Delegate: delegate{backend{l}},
	})
	return l, l.Resume(context.Background())
}

// call makes one call with whatever fault it has.
func (l *life) call(ctx context.Context, name string, effect func() error) error {
	if l.hook != nil {
		l.hook(ctx, name)
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.dead {
		return errDead
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.calls = append(l.calls, name)
	f, hit := l.faults[len(l.calls)]
	hit = hit && (f.kill || !silent(name))
	if hit && !f.after {
		return l.strike(f)
	}
	err := effect()
	if hit {
		return l.strike(f)
	}
	return err
}

// silent calls return no error: only a daemon's end can keep them from their effect.
func silent(call string) bool {
	for _, name := range []string{"Discard", "Publish", "Release", "Quarantine"} {
		if strings.HasPrefix(call, name) {
			return true
		}
	}
	return false
}

func (l *life) strike(f fault) error {
	if f.kill {
		l.dead = true
		return errDead
	}
	return errInjected
}

// made returns the calls whose name begins with a prefix.
func (l *life) made(prefix string) []string {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	var found []string
	for _, c := range l.calls {
		if strings.HasPrefix(c, prefix) {
			found = append(found, c)
		}
	}
	return found
}
