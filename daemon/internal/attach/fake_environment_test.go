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

// environment is a model of what remains after a daemon's end: the API server's objects, the disk and
// the kernel. Several daemons use it one after the other.
type environment struct {
	mu       sync.Mutex
	pods     map[string]*corev1.Pod
	networks map[network.Ref]*network.Network
	// invalid has the networks that fail validation.
	invalid map[network.Ref]bool
	// unknown has the networks of which it is unknown whether they exist, because the API server does not answer.
	unknown map[network.Ref]bool
	// nodeConfiguration is the CNI configuration that the node has beside Patchbay's; empty for none.
	nodeConfiguration string
	// claimed has the claimed addresses: the bits in the bitmaps.
	claimed map[netip.Addr]bool
	// records is the journal as JSON.
	records map[string][]byte
	// namespaces maps each network namespace to its links and their addresses.
	namespaces map[string]map[string][]netip.Addr
	// delegated has the state of another plugin on the host, by sandbox and interface.
	delegated map[string]string
	// endpoints maps DanmEps to their addresses.
	endpoints map[string][]netip.Addr
	// events has the Events on Pods and networks.
	events []string
	// owners has the Pods of addresses as namespace/name.
	owners map[netip.Addr]string
	// ownersErr is the error of each search for an owner.
	ownersErr error
	// machines has the MAC addresses of other machines by IP address. An address in quarantine is
	// claimed as well.
	machines    map[netip.Addr]net.HardwareAddr
	quarantined map[netip.Addr]bool
	// quarantineLimit is how many addresses may be in quarantine.
	quarantineLimit int
	// devices has the devices that kubelet has allocated, by Pod as namespace/name and by pool.
	devices map[string]map[string][]string
	// functions has the state of each device: "" or the interface that has it. Without it, the node does
	// not support devices.
	functions map[string]string
	// boots counts the boots of the kernel.
	boots int
}

// bootID returns the boot ID.
func (env *environment) bootID() string { return fmt.Sprintf("boot-%d", env.boots) }

// powerCut loses all state that is not on disk or in the API server.
func (env *environment) powerCut() {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.boots++
	clear(env.namespaces)
	clear(env.functions)
}

// rebuildClaimed rebuilds the claimed addresses, as the allocator does after a restart. An address that
// neither the journal nor a DanmEp has is free.
func (env *environment) rebuildClaimed() {
	clear(env.claimed)
	for _, data := range env.records {
		rec := decode(data)
		for i := range rec.Interfaces {
			env.markClaimed(rec.Interfaces[i].V4.Addr(), rec.Interfaces[i].V6.Addr())
		}
	}
	for _, addresses := range env.endpoints {
		env.markClaimed(addresses...)
	}
}

// markClaimed marks addresses as claimed.
func (env *environment) markClaimed(addresses ...netip.Addr) {
	for _, a := range addresses {
		if a.IsValid() {
			env.claimed[a] = true
		}
	}
}

// remaining describes all state except Pods and networks, line by line.
func (env *environment) remaining() []string {
	env.mu.Lock()
	defer env.mu.Unlock()
	var lines []string
	for a := range env.claimed {
		if env.quarantined[a] {
			continue
		}
		lines = append(lines, "address "+a.String())
	}
	for key, data := range env.records {
		lines = append(lines, fmt.Sprintf("record %s %s", key, decode(data).State))
	}
	for ns, links := range env.namespaces {
		for name := range links {
			lines = append(lines, "link "+ns+" "+name)
		}
	}
	for key := range env.delegated {
		lines = append(lines, "delegated "+key)
	}
	for name := range env.endpoints {
		lines = append(lines, "endpoint "+name)
	}
	for id, owner := range env.functions {
		if owner != "" {
			lines = append(lines, "device "+id+" is "+owner)
		}
	}
	slices.Sort(lines)
	return lines
}

// mustBeEmpty fails the test when any state remains.
func (env *environment) mustBeEmpty(tb testing.TB, when string) {
	tb.Helper()
	if diff := cmp.Diff([]string(nil), env.remaining()); diff != "" {
		tb.Fatalf("remaining state %s: -want +got:\n%s", when, diff)
	}
}

// check checks the invariants: no address is on two links, no address on a link is free, and each link
// has a record.
func (env *environment) check() error {
	env.mu.Lock()
	defer env.mu.Unlock()
	owners := map[netip.Addr]string{}
	recorded := map[string]bool{}
	for _, data := range env.records {
		rec := decode(data)
		for i := range rec.Interfaces {
			recorded[rec.Netns+" "+rec.Interfaces[i].Name] = true
		}
	}
	for _, ns := range slices.Sorted(maps.Keys(env.namespaces)) {
		for name, addresses := range env.namespaces[ns] {
			link := ns + " " + name
			if !recorded[link] {
				return fmt.Errorf("link %s has no record", link)
			}
			for _, a := range addresses {
				if other := owners[a]; other != "" {
					return fmt.Errorf("address %s is on %s and %s", a, other, link)
				}
				if !env.claimed[a] {
					return fmt.Errorf("address %s of %s is free", a, link)
				}
				owners[a] = link
			}
		}
	}
	return nil
}

// request returns a runtime's request for sandbox id of Pod ns/web.
func request(id string) attach.Request {
	return attach.Request{
		ContainerID: id, IfName: "eth0", Netns: "/run/netns/" + id, NetName: "patchbay",
		PodNamespace: "ns", PodName: "web", PodUID: "uid", CNIDir: "/etc/cni/net.d", Path: "/opt/cni/bin",
	}
}

// sandbox creates the network namespace of a sandbox, as a runtime does before ADD, and returns its
// request.
func (env *environment) sandbox(id string) attach.Request {
	env.mu.Lock()
	defer env.mu.Unlock()
	req := request(id)
	if env.namespaces[req.Netns] == nil {
		env.namespaces[req.Netns] = map[string][]netip.Addr{}
	}
	return req
}

// end removes the network namespace of a sandbox, as a runtime does after DEL.
func (env *environment) end(id string) {
	env.mu.Lock()
	defer env.mu.Unlock()
	delete(env.namespaces, request(id).Netns)
}

// errInjected is the error of an injected fault, and errKilled that of each call of a killed daemon.
var (
	errInjected = errors.New("injected")
	errKilled   = errors.New("daemon is killed")
)

// fault is a fault of one call.
type fault struct {
	// after injects the fault after the call had its effect, like a lost answer.
	after bool
	// kill kills the daemon. Otherwise the call returns errInjected.
	kill bool
}

// testDaemon is one daemon. It implements the interfaces of package attach.
type testDaemon struct {
	*attach.Service

	config attach.Config
	env    *environment
	// faults has the faults by the number of the call, from 1.
	faults map[int]fault
	// calls has the calls; env.mu guards it.
	calls  []string
	killed bool
	// queue has the keys that the Publisher has not processed.
	queue []string
	// invalidResult makes the delegate's results invalid.
	invalidResult bool
	// hook, if set, is called before each call.
	hook func(ctx context.Context, call string)
}

// start starts a daemon and calls Resume.
func (env *environment) start(faults map[int]fault) (*testDaemon, error) {
	d := &testDaemon{env: env, faults: faults}
	env.mu.Lock()
	env.rebuildClaimed()
	boot := env.bootID()
	env.mu.Unlock()
	d.config = attach.Config{
		BootID: boot, KubeClient: d, Addresses: d, Journal: journal{d}, HostLinks: d, NetworkNamespaces: d, Publisher: d, Prober: d, AddressOwners: d, KnownNetwork: d.knownNetwork,
		Devices:  d,
		Backends: map[string]attach.Backend{"ipvlan": backend{d}, "macvlan": backend{d}},
		Delegate: delegate{backend{d}},
	}
	if env.functions != nil {
		d.config.Backends["sriov"] = deviceBackend{backend{d}}
	}
	d.Service = attach.New(d.config)
	return d, d.Resume(context.Background())
}

// call makes one call, with its fault.
func (d *testDaemon) call(ctx context.Context, name string, effect func() error) error {
	if d.hook != nil {
		d.hook(ctx, name)
	}
	d.env.mu.Lock()
	defer d.env.mu.Unlock()
	if d.killed {
		return errKilled
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	d.calls = append(d.calls, name)
	f, hit := d.faults[len(d.calls)]
	hit = hit && (f.kill || !returnsNoError(name))
	if hit && !f.after {
		return d.faultError(f)
	}
	err := effect()
	if hit {
		return d.faultError(f)
	}
	return err
}

// returnsNoError reports whether a call has no error result, so that only a kill can prevent its effect.
func returnsNoError(call string) bool {
	for _, name := range []string{"Discard", "Publish", "Release", "Quarantine"} {
		if strings.HasPrefix(call, name) {
			return true
		}
	}
	return false
}

// faultError applies a fault and returns its error.
func (d *testDaemon) faultError(f fault) error {
	if f.kill {
		d.killed = true
		return errKilled
	}
	return errInjected
}

// callsWithPrefix returns the calls whose names begin with a prefix.
func (d *testDaemon) callsWithPrefix(prefix string) []string {
	d.env.mu.Lock()
	defer d.env.mu.Unlock()
	var found []string
	for _, c := range d.calls {
		if strings.HasPrefix(c, prefix) {
			found = append(found, c)
		}
	}
	return found
}
