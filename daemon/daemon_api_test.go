// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// asks is an annotation for one address of a network.
func asks(cn *v1.ClusterNetwork, ip string) string {
	return fmt.Sprintf(`[{"clusterNetwork": %q, "ip": %q}]`, cn.Name, ip)
}

func TestPodIsAttachedAndDetached(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	cn := n.network("10.20.0.0/24")
	n.start()
	n.awaitReady()
	p := n.pod(ns, asks(cn, "dynamic"))

	result, err := n.call("ADD", p)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.IPs) != 1 {
		t.Fatalf("result has %d addresses, want 1: %+v", len(result.IPs), result)
	}
	want := result.IPs[0].Address.String()
	if got := p.eth0(t); got != want {
		t.Errorf("eth0 has %s, the result says %s", got, want)
	}
	eventually(t, "the DanmEp", func(ctx context.Context) error {
		eps := &v1.DanmEpList{}
		if err := env.Client.List(ctx, eps, client.InNamespace(ns)); err != nil || len(eps.Items) != 1 {
			return fmt.Errorf("%d DanmEps: %w", len(eps.Items), err)
		}
		if got := eps.Items[0].Spec.Interface.Address; got != want {
			return fmt.Errorf("DanmEp has %s, want %s", got, want)
		}
		return nil
	})
	again, err := n.call("ADD", p)
	if err != nil || again.IPs[0].Address.String() != want {
		t.Errorf("a repeated ADD: got %+v, %v, want the same result", again, err)
	}
	if _, err := n.call("DEL", p); err != nil {
		t.Fatal(err)
	}
	if _, err := n.call("DEL", p); err != nil {
		t.Errorf("a repeated DEL: %v", err)
	}
	if got := p.eth0(t); !strings.Contains(got, "does not exist") {
		t.Errorf("eth0 after DEL: %s", got)
	}
	n.awaitUnused(cn)
}

func TestRefusalsLeaveNothingAndSayWhy(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	cn := n.network("10.21.0.0/24")
	n.start()
	n.awaitReady()
	cases := map[string]struct {
		reason, interfaces, want string
	}{
		"UnknownNetwork": {
			reason: "the network does not exist", want: "nowhere",
			interfaces: `[{"clusterNetwork": "nowhere"}]`,
		},
		"Outside": {
			reason: "a static address of another subnet", want: "192.0.2.1",
			interfaces: asks(cn, "192.0.2.1"),
		},
		"BadJSON": {
			reason: "the annotation is cut short", want: "danm.io/interfaces",
			interfaces: `[{"clusterNetwork": `,
		},
		"SecondFails": {
			reason: "the first interface is rolled back", want: "192.0.2.1",
			interfaces: strings.Replace(asks(cn, "dynamic"), "]", ",", 1) + strings.TrimPrefix(asks(cn, "192.0.2.1"), "["),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := n.pod(ns, tc.interfaces)
			_, err := n.call("ADD", p)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.want)
			}
			eventually(t, "the Event on the Pod", func(ctx context.Context) error {
				events := &corev1.EventList{}
				if err := env.Client.List(ctx, events, client.InNamespace(ns),
					client.MatchingFields{"involvedObject.uid": string(p.UID)}); err != nil {
					return err
				}
				for _, e := range events.Items {
					if e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, tc.want) {
						return nil
					}
				}
				return fmt.Errorf("%d Events, none with %q", len(events.Items), tc.want)
			})
			if got := p.eth0(t); !strings.Contains(got, "does not exist") {
				t.Errorf("%s: eth0 stayed: %s", tc.reason, got)
			}
			n.awaitUnused(cn)
		})
	}
}

func TestDaemonRestarts(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	cn := n.network("10.22.0.0/24")
	stop := n.start()
	n.awaitReady()
	p := n.pod(ns, asks(cn, "10.22.0.7"))
	if _, err := n.call("ADD", p); err != nil {
		t.Fatal(err)
	}
	stop()
	n.start()
	n.awaitReady()
	if result, err := n.call("ADD", p); err != nil || result.IPs[0].Address.IP.String() != "10.22.0.7" {
		t.Errorf("ADD after a restart: got %+v, %v, want the same result", result, err)
	}
	other := n.pod(ns, asks(cn, "10.22.0.7"))
	if _, err := n.call("ADD", other); err == nil {
		t.Error("an address in use was given out again after a restart")
	}
	if _, err := n.call("DEL", p); err != nil {
		t.Fatal(err)
	}
	n.awaitUnused(cn)
	if _, err := n.call("ADD", other); err != nil {
		t.Errorf("the address is free again, and refused: %v", err)
	}
	if _, err := n.call("DEL", other); err != nil {
		t.Fatal(err)
	}
	n.awaitUnused(cn)
}

// With the API server away a starting daemon serves DELs; what they free is
// written when it is back.
func TestDaemonStartsWithoutTheAPIServer(t *testing.T) {
	env := apitest.New(t)
	n, ns := newNode(t, env), env.Namespace(t)
	cn := n.network("10.23.0.0/24")
	stop := n.start()
	n.awaitReady()
	gone, fresh := n.pod(ns, asks(cn, "dynamic")), n.pod(ns, asks(cn, "dynamic"))
	if _, err := n.call("ADD", gone); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := env.ControlPlane.Kill(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	stop = n.start()
	eventually(t, "DEL without the API server", func(ctx context.Context) error {
		_, err := n.callWith(ctx, "DEL", gone)
		return err
	})
	if got := gone.eth0(t); !strings.Contains(got, "does not exist") {
		t.Errorf("eth0 after DEL: %s", got)
	}
	if _, err := n.call("ADD", fresh); err == nil {
		t.Error("ADD without the API server succeeded, want error 11")
	}
	stop() // is no error, although nobody says whether the DaemonSet is there
	n.start()
	if err := env.ControlPlane.StartPart(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	n.awaitReady()
	n.awaitUnused(cn)
}

// The controller, which is not here, ends the deletion of a network that no node uses.
func TestDeletedNetworkIsGivenBack(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	cn := n.network("10.24.0.0/24")
	n.start()
	n.awaitReady()
	p := n.pod(ns, asks(cn, "dynamic"))
	if _, err := n.call("ADD", p); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Delete(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	late := n.pod(ns, asks(cn, "dynamic"))
	eventually(t, "new Pods to be refused", func(ctx context.Context) error {
		_, err := n.callWith(ctx, "ADD", late)
		if err != nil && ctx.Err() == nil {
			return nil
		}
		_, del := n.callWith(ctx, "DEL", late)
		return errors.Join(err, del, errors.New("attached to a network in deletion"))
	})
	if got := n.used(t.Context(), cn); got == "unused" || strings.Contains(got, "not found") {
		t.Errorf("the network went while a Pod used it: %s", got)
	}
	if _, err := n.call("DEL", p); err != nil {
		t.Fatal(err)
	}
	n.awaitUnused(cn)
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(cn), cn); err != nil || !slices.Contains(cn.Finalizers, v1.InUseFinalizer) {
		t.Errorf("a node let the network go: finalizers %v (error: %v)", cn.Finalizers, err)
	}
}

func TestInstallation(t *testing.T) {
	env := apitest.Start(t)
	n := newNode(t, env)
	stop := n.start()
	n.awaitReady()
	for _, file := range []string{"bin/patchbay", "conf/00-patchbay.conflist"} {
		if _, err := os.Stat(n.path(file)); err != nil {
			t.Errorf("after the start: %v", err)
		}
	}
	stop() // there is no DaemonSet
	for _, file := range []string{"bin/patchbay", "conf/00-patchbay.conflist"} {
		if _, err := os.Stat(n.path(file)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the DaemonSet is gone, and %s is still there: %v", file, err)
		}
	}
}
