// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// A Pod that requests no interface gets the node's CNI configuration while no default network is for it. The
// API server and the allocator learn nothing of it, and DEL uses the configuration of the ADD.
func TestNodeConfiguration(t *testing.T) {
	t.Parallel()
	refs := network.DefaultRefs("ns")
	cases := map[string]struct {
		reason, annotation string
		deleting           []int
		// meanwhile happens between ADD and DEL.
		meanwhile func(*environment)
		// restart is whether the daemon is started again before DEL.
		restart bool
	}{
		"NoDefault":    {reason: "None of the default networks exists."},
		"EmptyList":    {reason: "An empty list counts as no annotation.", annotation: "[]"},
		"InDeletion":   {reason: "The default networks take no new Pods.", deleting: []int{0, 1, 2}},
		"Restart":      {reason: "The record is in the journal.", restart: true},
		"OtherFile":    {reason: "The node has another configuration at DEL.", meanwhile: func(env *environment) { env.nodeConfiguration = "05-new.conflist" }},
		"NoFile":       {reason: "The node has no configuration at DEL.", meanwhile: func(env *environment) { env.nodeConfiguration = "" }, restart: true},
		"DefaultAdded": {reason: "New Pods get the default network, and this one keeps its own.", meanwhile: (*environment).addDefault, restart: true},
		"Rebooted":     {reason: "The network namespace is gone.", meanwhile: (*environment).powerCut, restart: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newEnvironment()
			env.nodeConfiguration = "10-old.conflist"
			for _, i := range tc.deleting {
				env.add(network.Network{Ref: refs[i], ID: "d", Type: "ipvlan", Deleting: true})
			}
			env.pod(tc.annotation)
			d := env.mustStart(t)
			result, err := d.Add(context.Background(), env.sandbox("a"))
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff([]string{"veth0", "eth0 /run/netns/a"}, lines(result)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			want := []string{"delegated a/eth0", "link /run/netns/a eth0", "record a/eth0 attached"}
			if diff := cmp.Diff(want, env.remaining()); diff != "" || slices.Contains(d.calls, "Claim") || len(d.queue) > 0 {
				t.Errorf("%s: got calls %v and %d records to publish, want no claim and none; -want +got:\n%s", tc.reason, d.calls, len(d.queue), diff)
			}
			if tc.meanwhile != nil {
				tc.meanwhile(env)
			}
			if tc.restart {
				d = env.mustStart(t)
			}
			if err := d.Del(context.Background(), request("a")); err != nil {
				t.Fatalf("%s: DEL: %v", tc.reason, err)
			}
			env.mustBeEmpty(t, "after DEL")
		})
	}
}

// addDefault adds a ClusterNetwork for Pods without an annotation.
func (env *environment) addDefault() {
	env.add(network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: v1.DefaultNetworkName}, ID: "d", Type: "ipvlan",
		V4: subnet("10.1.0.0/29", "10.1.0.1", "10.1.0.6"),
	})
}

// A repeated ADD gets the same result, and a Pod that starts later gets the default network that exists
// then.
func TestDefaultNetworkTakesOver(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	env.nodeConfiguration = "10-old.conflist"
	env.pod("")
	d := env.mustStart(t)
	for _, step := range []struct {
		reason, sandbox string
		want            []string
	}{
		{"There is no default network.", "a", []string{"veth0", "eth0 /run/netns/a"}},
		{"The sandbox is attached already.", "a", []string{"veth0", "eth0 /run/netns/a"}},
		{"The default network exists now.", "b", []string{"eth0 /run/netns/b", "eth0 10.1.0.1/29"}},
	} {
		result, err := d.Add(context.Background(), env.sandbox(step.sandbox))
		if err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		if diff := cmp.Diff(step.want, lines(result)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", step.reason, diff)
		}
		env.addDefault()
	}
}

// unknownSandboxes has the sandboxes of another plugin, and the error of their DEL.
type unknownSandboxes map[string]error

func (u unknownSandboxes) DetachUnknown(_ context.Context, req *attach.Request) error {
	if err := u[req.ContainerID]; err != nil {
		return err
	}
	delete(u, req.ContainerID)
	return nil
}

// A sandbox from before the installation is detached by the plugin that attached it. If that fails, the runtime
// must send DEL again.
func TestDelOfUnknownSandbox(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	env.nodeConfiguration = "10-old.conflist"
	env.pod("")
	d := env.mustStart(t)
	failed := errors.New("iptables is locked")
	before := unknownSandboxes{"a": nil, "b": nil, "c": failed}
	d.config.Unknown = before
	service := attach.New(d.config)
	if _, err := service.Add(t.Context(), env.sandbox("b")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason, sandbox string
		err             error
		left            []string
	}{
		{"Another plugin attached it.", "a", nil, []string{"b", "c"}},
		{"DEL is repeated.", "a", nil, []string{"b", "c"}},
		{"Patchbay attached it.", "b", nil, []string{"b", "c"}},
		{"The other plugin fails.", "c", failed, []string{"b", "c"}},
	} {
		if err := service.Del(t.Context(), request(tc.sandbox)); !errors.Is(err, tc.err) {
			t.Errorf("%s: got error %v, want %v", tc.reason, err, tc.err)
		}
		if diff := cmp.Diff(tc.left, slices.Sorted(maps.Keys(before))); diff != "" {
			t.Errorf("%s: sandboxes that are left: -want +got:\n%s", tc.reason, diff)
		}
	}
}
