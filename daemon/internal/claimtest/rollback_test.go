// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	conflicts "k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// checkRecovery checks that no claim succeeds before all nodes have reported, and that the recovery ends
// then. The last node reports later than the others.
func (l *trio) checkRecovery(t *testing.T) {
	t.Helper()
	down := l.hosts[len(l.hosts)-1]
	names := l.names()
	eventually(t, "two nodes have reported", func() error {
		if _, err := l.collector.Recover(t.Context(), network.KeyOf(l.net), names, nil); err != nil {
			return err // Recover also starts the recovery
		}
		o, err := readNetwork(t, l.env, l.net)
		if err != nil && o == nil {
			return err
		}
		if o.IPAM == nil || o.IPAM.Recovering == nil {
			return errors.New("status.ipam.recovering is not set")
		}
		if diff := cmp.Diff(names[:2], o.IPAM.Recovering.ReportedNodes); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	for _, h := range l.hosts[:2] {
		if _, _, err := h.daemon.Load().Claim(t.Context(), l.net, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{}); !errors.Is(err, status.ErrTryAgain) {
			t.Errorf("claim on %s while %s is awaited: got %v, want ErrTryAgain", h.name, down.name, err)
		}
	}
	awaited, err := l.collector.Recover(t.Context(), network.KeyOf(l.net), names, nil)
	if err != nil || !slices.Equal(awaited, []string{down.name}) {
		t.Errorf("Recover: got %v and error %v, want %s", awaited, err, down.name)
	}
	if err := l.hosts[2].reconcile(t.Context(), down.start()); err != nil {
		t.Fatal(err)
	}
	l.awaitRecoveryOver(t)
}

// Etcd is restored from a backup that lacks addresses in use and warm addresses.
func TestEtcdRollback(t *testing.T) {
	env := apitest.New(t)
	l := newTrioWithPods(t, env)
	l.attach(t, 3, 0, 1)
	restore := env.Backup(t)
	l.attach(t, 3, 0, 1, 2)
	end := l.startChurn(t, l.hosts[0], l.hosts[1])
	defer end()
	l.hosts[2].powerDown()
	restore()
	for _, h := range l.hosts[:2] {
		if err := h.retry(t.Context(), func(d *daemon) error { return d.recreateLost(t.Context()) }); err != nil {
			t.Fatal(err)
		}
	}
	l.checkRecovery(t)
	if err := l.hosts[2].retry(t.Context(), func(d *daemon) error { return d.recreateLost(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	l.awaitRecoveryOver(t) // the missing DanmEps of the last node start another recovery
	l.attach(t, 5, 0, 1, 2)
	end()
	l.detachAll(t)
}

// awaitRecoveryOver waits until all nodes have reported and the recovery has ended.
func (l *trio) awaitRecoveryOver(t *testing.T) {
	t.Helper()
	eventually(t, "all nodes have reported", func() error {
		awaited, err := l.collector.Recover(t.Context(), network.KeyOf(l.net), l.names(), nil)
		if err == nil && len(awaited) > 0 {
			err = errors.New("awaited: " + awaited[0])
		}
		return err
	})
}

// Only the status of the network is lost or replaced by an older copy.
func TestStatusRollback(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		status func(before *v1.IPAMStatus) *v1.IPAMStatus
		// churn attaches and detaches Pods meanwhile. A node recognizes an older copy with a new
		// resourceVersion only by its own entry.
		churn bool
	}{
		"Copy":    {reason: "An older copy is written.", status: func(before *v1.IPAMStatus) *v1.IPAMStatus { return before }},
		"Dropped": {reason: "A backup tool omits the status.", status: func(*v1.IPAMStatus) *v1.IPAMStatus { return nil }, churn: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Log(tc.reason)
			l := newTrioWithPods(t, apitest.Start(t))
			l.attach(t, 2, 0)
			before, err := readNetwork(t, l.env, l.net)
			if err != nil {
				t.Fatal(err)
			}
			l.attach(t, 3, 0, 1, 2)
			end := func() {}
			if tc.churn {
				end = l.startChurn(t, l.hosts[0], l.hosts[1])
			}
			defer end()
			l.hosts[2].powerDown()
			l.replaceStatus(t, tc.status(before.IPAM))
			l.checkRecovery(t)
			l.attach(t, 5, 0, 1, 2)
			end()
			l.detachAll(t)
		})
	}
}

// replaceStatus writes status.ipam as an admin.
func (l *trio) replaceStatus(t *testing.T, ipam *v1.IPAMStatus) {
	t.Helper()
	err := conflicts.RetryOnConflict(conflicts.DefaultBackoff, func() error {
		o := &v1.ClusterNetwork{}
		if err := l.env.Client.Get(t.Context(), client.ObjectKey{Name: l.net.Ref.Name}, o); err != nil {
			return err
		}
		o.Status.IPAM = ipam.DeepCopy()
		return l.env.Client.Status().Update(context.WithoutCancel(t.Context()), o)
	})
	if err != nil {
		t.Fatal(err)
	}
}
