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

// requestInterface returns an annotation that requests an interface of a network.
func requestInterface(cn *v1.ClusterNetwork, ip string) string {
	return fmt.Sprintf(`[{"clusterNetwork": %q, "ip": %q}]`, cn.Name, ip)
}

// A Pod is attached with the address of the result and of its DanmEp, and a DEL removes all.
func TestPodIsAttachedAndDetached(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	cn := n.network("10.20.0.0/24")
	n.start()
	n.awaitReady()
	p := n.pod(ns, requestInterface(cn, "dynamic"))

	result, err := n.call("ADD", p)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.IPs) != 1 {
		t.Fatalf("got %d addresses in the result, want 1: %+v", len(result.IPs), result)
	}
	want := result.IPs[0].Address.String()
	if got := p.eth0(t); got != want {
		t.Errorf("eth0: got %s, want %s as in the result", got, want)
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
		t.Errorf("repeated ADD: got %+v and error %v, want the same result", again, err)
	}
	if _, err := n.call("DEL", p); err != nil {
		t.Fatal(err)
	}
	if _, err := n.call("DEL", p); err != nil {
		t.Errorf("repeated DEL: %v", err)
	}
	if got := p.eth0(t); !strings.Contains(got, "does not exist") {
		t.Errorf("eth0 after DEL: got %s, want none", got)
	}
	n.awaitUnused(cn)
}

// A rejected Pod gets an error and an Event with the cause, and nothing remains.
func TestRejectedPodsLeaveNothing(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	cn := n.network("10.21.0.0/24")
	n.start()
	n.awaitReady()
	cases := map[string]struct {
		reason, interfaces, want string
	}{
		"UnknownNetwork": {
			reason: "The network does not exist.", want: "nowhere",
			interfaces: `[{"clusterNetwork": "nowhere"}]`,
		},
		"Outside": {
			reason: "The static address is in another subnet.", want: "192.0.2.1",
			interfaces: requestInterface(cn, "192.0.2.1"),
		},
		"BadJSON": {
			reason: "The annotation is truncated.", want: "danm.io/interfaces",
			interfaces: `[{"clusterNetwork": `,
		},
		"SecondFails": {
			reason: "The first interface is rolled back.", want: "192.0.2.1",
			interfaces: strings.Replace(requestInterface(cn, "dynamic"), "]", ",", 1) + strings.TrimPrefix(requestInterface(cn, "192.0.2.1"), "["),
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
				t.Errorf("%s: eth0: got %s, want none", tc.reason, got)
			}
			n.awaitUnused(cn)
		})
	}
}

// A restarted daemon has the addresses of the earlier one.
func TestDaemonRestarts(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	cn := n.network("10.22.0.0/24")
	stop := n.start()
	n.awaitReady()
	p := n.pod(ns, requestInterface(cn, "10.22.0.7"))
	if _, err := n.call("ADD", p); err != nil {
		t.Fatal(err)
	}
	stop()
	n.start()
	n.awaitReady()
	if result, err := n.call("ADD", p); err != nil || result.IPs[0].Address.IP.String() != "10.22.0.7" {
		t.Errorf("ADD after a restart: got %+v and error %v, want the same result", result, err)
	}
	other := n.pod(ns, requestInterface(cn, "10.22.0.7"))
	if _, err := n.call("ADD", other); err == nil {
		t.Error("ADD with an address in use after a restart: got no error, want one")
	}
	if _, err := n.call("DEL", p); err != nil {
		t.Fatal(err)
	}
	n.awaitUnused(cn)
	if _, err := n.call("ADD", other); err != nil {
		t.Errorf("ADD with a freed address: %v", err)
	}
	if _, err := n.call("DEL", other); err != nil {
		t.Fatal(err)
	}
	n.awaitUnused(cn)
}

// A daemon that starts without the API server handles DELs. It frees their addresses when the API
// server is available again.
func TestDaemonStartsWithoutTheAPIServer(t *testing.T) {
	env := apitest.New(t)
	n, ns := newNode(t, env), env.Namespace(t)
	cn := n.network("10.23.0.0/24")
	stop := n.start()
	n.awaitReady()
	attached, unattached := n.pod(ns, requestInterface(cn, "dynamic")), n.pod(ns, requestInterface(cn, "dynamic"))
	if _, err := n.call("ADD", attached); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := env.ControlPlane.Kill(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	stop = n.start()
	eventually(t, "DEL without the API server", func(ctx context.Context) error {
		_, err := n.callWith(ctx, "DEL", attached)
		return err
	})
	if got := attached.eth0(t); !strings.Contains(got, "does not exist") {
		t.Errorf("eth0 after DEL: got %s, want none", got)
	}
	if _, err := n.call("ADD", unattached); err == nil {
		t.Error("ADD without the API server succeeded, want error 11")
	}
	stop() // without an error, although it is unknown whether the DaemonSet exists
	n.start()
	if err := env.ControlPlane.StartPart(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	n.awaitReady()
	n.awaitUnused(cn)
}

// The addresses of a network in deletion are freed when its Pods end. The network itself stays, because
// the controller, which removes its finalizer, does not run.
func TestDeletedNetworkIsFreed(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	cn := n.network("10.24.0.0/24")
	n.start()
	n.awaitReady()
	p := n.pod(ns, requestInterface(cn, "dynamic"))
	if _, err := n.call("ADD", p); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Delete(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	late := n.pod(ns, requestInterface(cn, "dynamic"))
	eventually(t, "new Pods to be rejected", func(ctx context.Context) error {
		_, err := n.callWith(ctx, "ADD", late)
		if err != nil && ctx.Err() == nil {
			return nil
		}
		_, del := n.callWith(ctx, "DEL", late)
		return errors.Join(err, del, errors.New("attached to a network in deletion"))
	})
	if got := n.used(t.Context(), cn); got == "unused" || strings.Contains(got, "not found") {
		t.Errorf("network of an attached Pod: got %s, want it in use", got)
	}
	if _, err := n.call("DEL", p); err != nil {
		t.Fatal(err)
	}
	n.awaitUnused(cn)
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(cn), cn); err != nil || !slices.Contains(cn.Finalizers, v1.InUseFinalizer) {
		t.Errorf("network after DEL: got finalizers %v and error %v, want the finalizer of the controller", cn.Finalizers, err)
	}
}

// A ready daemon installs the plugin, and uninstalls it when its DaemonSet is gone.
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
	stop() // the DaemonSet does not exist
	for _, file := range []string{"bin/patchbay", "conf/00-patchbay.conflist"} {
		if _, err := os.Stat(n.path(file)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s without a DaemonSet: got error %v, want ErrNotExist", file, err)
		}
	}
}
