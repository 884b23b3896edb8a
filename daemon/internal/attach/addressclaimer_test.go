// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// ReportConflict implements attach.KubeClient.
func (d *testDaemon) ReportConflict(pod *corev1.Pod, n *network.Network, err error) {
	d.env.mu.Lock()
	defer d.env.mu.Unlock()
	objects := n.Ref.String()
	if pod != nil {
		objects += " and " + pod.Name
	}
	d.env.events = append(d.env.events, fmt.Sprintf("%s: %v", objects, err))
}

// Quarantine implements attach.Addresses.
func (d *testDaemon) Quarantine(_ *network.Network, a netip.Addr) (kept bool) {
	_ = d.call(context.Background(), "Quarantine "+a.String(), func() error {
		kept = len(d.env.quarantined) < d.env.quarantineLimit
		if kept {
			d.env.quarantined[a] = true
		} else {
			delete(d.env.claimed, a)
		}
		return nil
	})
	return kept
}

// Probe implements attach.Prober.
func (d *testDaemon) Probe(ctx context.Context, parent string, addrs []netip.Addr) (macs map[netip.Addr]net.HardwareAddr, err error) {
	macs = map[netip.Addr]net.HardwareAddr{}
	err = d.call(ctx, fmt.Sprintf("Probe %s %v", parent, addrs), func() error {
		for _, a := range addrs {
			if mac := d.env.machines[a]; mac != nil {
				macs[a] = mac
			}
		}
		return nil
	})
	return macs, err
}

// newSharedEnvironment returns an environment with a network of both families on which other machines
// use these addresses.
func newSharedEnvironment(annotation string, machines ...string) *environment {
	env := newEnvironment()
	env.pod(annotation)
	env.add(network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "lan"}, ID: "lan", Type: "macvlan", Prefix: "eth", Table: 100, Device: "ens4", ConflictProbe: true,
		V4: subnet("10.0.0.0/29", "10.0.0.1", "10.0.0.6"), V6: subnet("fd00::/125", "fd00::1", "fd00::6"),
	})
	env.machines, env.quarantined, env.quarantineLimit = map[netip.Addr]net.HardwareAddr{}, map[netip.Addr]bool{}, 10
	for _, a := range machines {
		env.machines[netip.MustParseAddr(a)] = net.HardwareAddr{2, 0, 0, 0, 0, 9}
	}
	return env
}

const (
	dynamicLAN = `[{"clusterNetwork": "lan", "ip": "dynamic", "ip6": "dynamic"}]`
	staticLAN  = `[{"clusterNetwork": "lan", "ip": "10.0.0.5", "ip6": "dynamic"}]`
)

// An ADD on a network with ConflictProbe gets no address that another machine uses.
func TestProbe(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, pod     string
		machines        []string
		quarantineLimit int
		// got has the addresses, quarantined those in quarantine, and events has parts of the Events.
		got, quarantined, events []string
		// err has parts of the error; retry is true when the error wraps ErrTryAgain.
		err   []string
		retry bool
	}{
		"Free": {
			reason: "No other machine uses the addresses.", pod: dynamicLAN, quarantineLimit: 9,
			got: []string{"eth0 10.0.0.1/29", "eth0 fd00::1/125"},
		},
		"OneFamily": {
			reason: "The address of the other family stays.", pod: dynamicLAN, machines: []string{"10.0.0.1"}, quarantineLimit: 9,
			got: []string{"eth0 10.0.0.2/29", "eth0 fd00::1/125"}, quarantined: []string{"10.0.0.1"},
			events: []string{"ClusterNetwork/lan and web: address conflict", "MAC 02:00:00:00:00:09, has 10.0.0.1", "Pod ns/web"},
		},
		"TwoInARow": {
			reason: "The third address is free.", pod: dynamicLAN, machines: []string{"10.0.0.1", "10.0.0.2", "fd00::1"}, quarantineLimit: 9,
			got: []string{"eth0 10.0.0.3/29", "eth0 fd00::2/125"}, quarantined: []string{"10.0.0.1", "10.0.0.2", "fd00::1"},
			events: []string{"has 10.0.0.1", "has 10.0.0.2", "has fd00::1"},
		},
		"ThreeInARow": {
			reason: "An ADD probes three addresses, and the next ADD continues after them.", pod: dynamicLAN, machines: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, quarantineLimit: 9,
			quarantined: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, retry: true,
			err: []string{"3 addresses in a row", "allocation_pool", "ClusterNetwork/lan"},
		},
		"Everything": {
			reason: "A machine that answers for each address must not exhaust the pool.", pod: dynamicLAN, quarantineLimit: 1, retry: true,
			machines:    []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"},
			quarantined: []string{"10.0.0.1"}, err: []string{"MAC 02:00:00:00:00:09, has 10.0.0.2", "too many addresses are in quarantine"},
			events: []string{"ClusterNetwork/lan: address conflict"},
		},
		"Static": {
			reason: "A static address cannot be replaced.", pod: staticLAN, machines: []string{"10.0.0.5"}, quarantineLimit: 9,
			err:    []string{"address conflict", "ClusterNetwork/lan", "MAC 02:00:00:00:00:09, has 10.0.0.5", "remove it from that machine, or request another"},
			events: []string{"ClusterNetwork/lan: address conflict"},
		},
		"BesideStatic": {
			reason: "The dynamic address of the other family is replaced.", pod: staticLAN, machines: []string{"fd00::1"}, quarantineLimit: 9,
			got: []string{"eth0 10.0.0.5/29", "eth0 fd00::2/125"}, quarantined: []string{"fd00::1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newSharedEnvironment(tc.pod, tc.machines...)
			env.quarantineLimit = tc.quarantineLimit
			d := env.mustStart(t)
			result, err := d.Add(context.Background(), env.sandbox("a"))
			if (err != nil) != (tc.err != nil) || errors.Is(err, attach.ErrTryAgain) != tc.retry || errors.Is(err, attach.ErrConflict) != (err != nil) {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			for _, part := range tc.err {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got error %q, want one with %q", err, part)
				}
			}
			if err == nil {
				if diff := cmp.Diff(tc.got, lines(result)[1:]); diff != "" {
					t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
				}
				if err := errors.Join(env.check(), d.Del(context.Background(), request("a"))); err != nil {
					t.Error(err)
				}
				d.runPublisher()
			}
			var kept []string
			for a := range env.quarantined {
				kept = append(kept, a.String())
			}
			slices.Sort(kept)
			if diff := cmp.Diff(tc.quarantined, kept); diff != "" {
				t.Errorf("quarantined addresses: -want +got:\n%s", diff)
			}
			for _, part := range tc.events {
				if !strings.Contains(strings.Join(env.events, "\n"), part) {
					t.Errorf("no Event has %q: %v", part, env.events)
				}
			}
			env.end("a")
			env.mustBeEmpty(t, "at the end")
		})
	}
}

// No interface gets an address before its probe. Interfaces of other networks do not wait.
func TestProbeComesFirst(t *testing.T) {
	t.Parallel()
	env := newSharedEnvironment(`[{"clusterNetwork": "lan", "ip": "dynamic"}, {"network": "plain"}]`, "10.0.0.1")
	d := env.mustStart(t)
	if _, err := d.Add(context.Background(), env.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	var probed []string
	env.mu.Lock()
	for _, call := range d.calls {
		if strings.HasPrefix(call, "Probe") {
			probed = append(probed, call)
		}
		if strings.HasPrefix(call, "Attach") && len(probed) != 2 {
			t.Errorf("%s: got probes %v before it, want 2", call, probed)
		}
	}
	env.mu.Unlock()
	if diff := cmp.Diff([]string{"Probe ens4 [10.0.0.1]", "Probe ens4 [10.0.0.2]"}, probed); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// After a fault during the replacement of addresses, only the addresses in quarantine remain.
func TestProbeFaults(t *testing.T) {
	t.Parallel()
	for kill := range 2 {
		for call := 1; ; call++ {
			env := newSharedEnvironment(dynamicLAN, "10.0.0.1", "fd00::1", "10.0.0.2")
			d, err := env.start(map[int]fault{call: {kill: kill == 1, after: call%2 == 0}})
			if err == nil {
				_, _ = d.Add(context.Background(), env.sandbox("a")) // fails, unless the call has no error
			}
			if len(d.calls) < call {
				break // all calls had a fault
			}
			if d, err = env.start(nil); err != nil {
				t.Fatal(err)
			}
			if err := d.Del(context.Background(), request("a")); err != nil {
				t.Fatalf("DEL after a fault in call %d: %v", call, err)
			}
			d.runPublisher()
			env.end("a")
			env.mustBeEmpty(t, fmt.Sprintf("after a fault in call %d of %v", call, d.calls))
		}
	}
}

// A replacement address must not be a gateway of the Pod's own routes.
func TestProbeRejectsOwnGateway(t *testing.T) {
	t.Parallel()
	env := newSharedEnvironment(`[{"clusterNetwork": "lan", "ip": "dynamic", "proutes": {"10.5.0.0/16": "10.0.0.2"}}]`, "10.0.0.1")
	d := env.mustStart(t)
	_, err := d.Add(context.Background(), env.sandbox("a"))
	if !errors.Is(err, attach.ErrTryAgain) || !strings.Contains(err.Error(), "gateway 10.0.0.2") {
		t.Errorf("got %v, want an error about the gateway", err)
	}
	if len(d.callsWithPrefix("Attach")) > 0 {
		t.Errorf("got calls %v, want no interface", d.callsWithPrefix("Attach"))
	}
}
