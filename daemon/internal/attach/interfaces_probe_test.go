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

// ReportConflict implements attach.Cluster.
func (l *life) ReportConflict(pod *corev1.Pod, n *network.Network, err error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	of := n.Ref.String()
	if pod != nil {
		of += " and " + pod.Name
	}
	l.w.events = append(l.w.events, fmt.Sprintf("%s: %v", of, err))
}

// Quarantine implements attach.Addresses.
func (l *life) Quarantine(_ *network.Network, a netip.Addr) (kept bool) {
	_ = l.call(context.Background(), "Quarantine "+a.String(), func() error {
		kept = len(l.w.quarantined) < l.w.room
		if kept {
			l.w.quarantined[a] = true
		} else {
			delete(l.w.held, a)
		}
		return nil
	})
	return kept
}

// Probe implements attach.Prober.
func (l *life) Probe(ctx context.Context, parent string, addrs []netip.Addr) (macs map[netip.Addr]net.HardwareAddr, err error) {
	macs = map[netip.Addr]net.HardwareAddr{}
	err = l.call(ctx, fmt.Sprintf("Probe %s %v", parent, addrs), func() error {
		for _, a := range addrs {
			if mac := l.w.machines[a]; mac != nil {
				macs[a] = mac
			}
		}
		return nil
	})
	return macs, err
}

// sharedWorld is newWorld with one network of both families that is shared with other
// machines, which have these addresses.
func sharedWorld(annotation string, machines ...string) *world {
	w := newWorld()
	w.pod(annotation)
	w.add(network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "lan"}, ID: "lan", Type: "macvlan", Prefix: "eth", Device: "ens4", ConflictProbe: true,
		V4: subnet("10.0.0.0/29", "10.0.0.1", "10.0.0.6"), V6: subnet("fd00::/125", "fd00::1", "fd00::6"),
	})
	w.machines, w.quarantined, w.room = map[netip.Addr]net.HardwareAddr{}, map[netip.Addr]bool{}, 10
	for _, a := range machines {
		w.machines[netip.MustParseAddr(a)] = net.HardwareAddr{2, 0, 0, 0, 0, 9}
	}
	return w
}

const (
	dynamicLAN = `[{"clusterNetwork": "lan", "ip": "dynamic", "ip6": "dynamic"}]`
	staticLAN  = `[{"clusterNetwork": "lan", "ip": "10.0.0.5", "ip6": "dynamic"}]`
)

func TestProbe(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, pod string
		machines    []string
		room        int
		// got are the addresses, quarantined those that are in quarantine then, events
		// parts of the Events.
		got, quarantined, events []string
		// err are parts of the error; again says that the Pod may come again.
		err   []string
		again bool
	}{
		"Free": {
			reason: "nothing has them", pod: dynamicLAN, room: 9,
			got: []string{"eth0 10.0.0.1/29", "eth0 fd00::1/125"},
		},
		"OneFamily": {
			reason: "the other family's address stays", pod: dynamicLAN, machines: []string{"10.0.0.1"}, room: 9,
			got: []string{"eth0 10.0.0.2/29", "eth0 fd00::1/125"}, quarantined: []string{"10.0.0.1"},
			events: []string{"ClusterNetwork/lan and web: address conflict", "MAC 02:00:00:00:00:09, has 10.0.0.1", "Pod ns/web"},
		},
		"TwoInARow": {
			reason: "the third is free", pod: dynamicLAN, machines: []string{"10.0.0.1", "10.0.0.2", "fd00::1"}, room: 9,
			got: []string{"eth0 10.0.0.3/29", "eth0 fd00::2/125"}, quarantined: []string{"10.0.0.1", "10.0.0.2", "fd00::1"},
			events: []string{"has 10.0.0.1", "has 10.0.0.2", "has fd00::1"},
		},
		"ThreeInARow": {
			reason: "ADD has an end; the next one goes on behind them", pod: dynamicLAN, machines: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, room: 9,
			quarantined: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, again: true,
			err: []string{"3 addresses in a row", "allocation_pool", "ClusterNetwork/lan"},
		},
		"Everything": {
			reason: "a Pod that answers for every address must not use the pool up", pod: dynamicLAN, room: 1, again: true,
			machines:    []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"},
			quarantined: []string{"10.0.0.1"}, err: []string{"MAC 02:00:00:00:00:09, has 10.0.0.2", "too many addresses are in quarantine"},
			events: []string{"ClusterNetwork/lan: address conflict"},
		},
		"Static": {
			reason: "the Pod wants no other", pod: staticLAN, machines: []string{"10.0.0.5"}, room: 9,
			err:    []string{"address conflict", "ClusterNetwork/lan", "MAC 02:00:00:00:00:09, has 10.0.0.5", "remove it from that machine, or ask for another"},
			events: []string{"ClusterNetwork/lan: address conflict"},
		},
		"BesideStatic": {
			reason: "the dynamic one of the other family is replaced", pod: staticLAN, machines: []string{"fd00::1"}, room: 9,
			got: []string{"eth0 10.0.0.5/29", "eth0 fd00::2/125"}, quarantined: []string{"fd00::1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := sharedWorld(tc.pod, tc.machines...)
			w.room = tc.room
			l := w.mustStart(t)
			result, err := l.Add(context.Background(), w.sandbox("a"))
			if (err != nil) != (tc.err != nil) || errors.Is(err, attach.ErrTryAgain) != tc.again || errors.Is(err, attach.ErrConflict) != (err != nil) {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			for _, part := range tc.err {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			if err == nil {
				if diff := cmp.Diff(tc.got, lines(result)[1:]); diff != "" {
					t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
				}
				if err := errors.Join(w.check(), l.Del(context.Background(), request("a"))); err != nil {
					t.Error(err)
				}
				l.drain()
			}
			var kept []string
			for a := range w.quarantined {
				kept = append(kept, a.String())
			}
			slices.Sort(kept)
			if diff := cmp.Diff(tc.quarantined, kept); diff != "" {
				t.Errorf("in quarantine: -want +got:\n%s", diff)
			}
			for _, part := range tc.events {
				if !strings.Contains(strings.Join(w.events, "\n"), part) {
					t.Errorf("no Event says %q: %v", part, w.events)
				}
			}
			w.end("a")
			w.mustBeEmpty(t, "in the end")
		})
	}
}

// Nothing uses an address before it was asked for, and no other network waits.
func TestProbeComesFirst(t *testing.T) {
	t.Parallel()
	w := sharedWorld(`[{"clusterNetwork": "lan", "ip": "dynamic"}, {"network": "plain"}]`, "10.0.0.1")
	l := w.mustStart(t)
	if _, err := l.Add(context.Background(), w.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	var probed []string
	w.mu.Lock()
	for _, call := range l.calls {
		if strings.HasPrefix(call, "Probe") {
			probed = append(probed, call)
		}
		if strings.HasPrefix(call, "Attach") && len(probed) != 2 {
			t.Errorf("%s after %v", call, probed)
		}
	}
	w.mu.Unlock()
	if diff := cmp.Diff([]string{"Probe ens4 [10.0.0.1]", "Probe ens4 [10.0.0.2]"}, probed); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Whatever fails or ends while addresses are replaced, nothing is left but what is in
// quarantine.
func TestProbeFaults(t *testing.T) {
	t.Parallel()
	for kill := range 2 {
		for call := 1; ; call++ {
			w := sharedWorld(dynamicLAN, "10.0.0.1", "fd00::1", "10.0.0.2")
			l, err := w.start(map[int]fault{call: {kill: kill == 1, after: call%2 == 0}})
			if err == nil {
				_, _ = l.Add(context.Background(), w.sandbox("a")) // fails, or the fault was silent
			}
			if len(l.calls) < call {
				break // the fault came to nothing
			}
			if l, err = w.start(nil); err != nil {
				t.Fatal(err)
			}
			if err := l.Del(context.Background(), request("a")); err != nil {
				t.Fatalf("DEL after a fault in call %d: %v", call, err)
			}
			l.drain()
			w.end("a")
			w.mustBeEmpty(t, fmt.Sprintf("after a fault in call %d of %v", call, l.calls))
		}
	}
}

// An address that takes the place of another machine's is no gateway of the Pod's routes.
func TestProbeGivesNoOwnGateway(t *testing.T) {
	t.Parallel()
	w := sharedWorld(`[{"clusterNetwork": "lan", "ip": "dynamic", "proutes": {"10.5.0.0/16": "10.0.0.2"}}]`, "10.0.0.1")
	l := w.mustStart(t)
	_, err := l.Add(context.Background(), w.sandbox("a"))
	if !errors.Is(err, attach.ErrTryAgain) || !strings.Contains(err.Error(), "gateway 10.0.0.2") {
		t.Errorf("got %v, want an error about the gateway", err)
	}
	if len(l.made("Attach")) > 0 {
		t.Errorf("made %v", l.made("Attach"))
	}
}
