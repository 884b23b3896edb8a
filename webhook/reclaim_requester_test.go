// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// pressing is an API server with one TenantNetwork, or none, that counts what is written.
type pressing struct {
	client.Client

	mu      sync.Mutex
	network *v1.TenantNetwork
	patches []string
}

// Get implements client.Client.
func (p *pressing) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	into, ok := obj.(*v1.TenantNetwork)
	if p.network == nil || !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "tenantnetworks"}, key.Name)
	}
	p.network.DeepCopyInto(into)
	return nil
}

// Status implements client.Client.
func (p *pressing) Status() client.SubResourceWriter { return pressedStatus{pressing: p} }

// pressedStatus is the network's status.
type pressedStatus struct {
	client.SubResourceWriter
	pressing *pressing
}

// Patch implements client.SubResourceWriter.
func (s pressedStatus) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	p := s.pressing
	p.mu.Lock()
	defer p.mu.Unlock()
	data, err := patch.Data(obj)
	p.patches = append(p.patches, string(data))
	return err
}

// written are the patches so far.
func (p *pressing) written() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.patches)
}

// waits counts the networks that wait.
func waits(p *presser) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

// holding is a network that a node holds addresses of.
func holding(uid types.UID) *v1.TenantNetwork {
	tn := &v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "net", UID: uid}}
	tn.Status.IPAM = &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{"node-1": {V4: "10.0.0.7"}}}
	return tn
}

// What the request says of a network is not believed: it may be made up.
func TestPress(t *testing.T) {
	t.Parallel()
	type made func() *v1.TenantNetwork // within the bubble, for its clock
	with := func(uid types.UID) made { return func() *v1.TenantNetwork { return holding(uid) } }
	pressed := func(ago time.Duration) made {
		return func() *v1.TenantNetwork {
			tn, at := holding("u"), metav1.NewMicroTime(time.Now().Add(-ago))
			tn.Status.IPAM.Pressure = &at
			return tn
		}
	}
	none := func() *v1.TenantNetwork { return nil }
	idle := func() *v1.TenantNetwork {
		return &v1.TenantNetwork{ObjectMeta: holding("u").ObjectMeta}
	}
	cases := map[string]struct {
		reason         string
		asked, network made
		want           int // writes
	}{
		"Held":      {reason: "A node holds addresses.", asked: with("u"), network: with("u"), want: 1},
		"NoUID":     {reason: "It would be written to whatever has the name.", asked: with(""), network: with("u")},
		"Other":     {reason: "It was made anew.", asked: with("u"), network: with("v")},
		"Gone":      {reason: "It was deleted.", asked: with("u"), network: none},
		"MadeUp":    {reason: "No node holds anything.", asked: with("u"), network: idle},
		"JustNow":   {reason: "Another replica has asked.", asked: with("u"), network: pressed(time.Second)},
		"Long":      {reason: "They have taken addresses again.", asked: pressed(time.Minute), network: pressed(time.Minute), want: 1},
		"Unheld":    {reason: "Nothing is in the way.", asked: idle, network: with("u")},
		"Refreshed": {reason: "The nodes were asked before this request.", asked: pressed(time.Second), network: with("u")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := &pressing{network: tc.network()}
				p := start(t, api)
				p.ask(tc.asked())
				time.Sleep(pressAgain / 2)
				synctest.Wait()
				if len(api.written()) != tc.want {
					t.Fatalf("%s\n%d writes, want %d: %v", tc.reason, len(api.written()), tc.want, api.written())
				}
				if tc.want > 0 && (!strings.Contains(api.written()[0], `"uid":"u"`) || !strings.Contains(api.written()[0], `"pressure"`)) {
					t.Errorf("%s\nwrote %s", tc.reason, api.written()[0])
				}
			})
		})
	}
}

func start(t *testing.T, api client.Client) *presser {
	t.Helper()
	p := newPresser(api, logr.Discard())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("end: %v", err)
		}
	})
	return p
}

// A hundred refusals of one network are one write, and keep no other network waiting.
func TestPressOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &pressing{network: holding("u")}
		p := start(t, api)
		for range 5 * pressQueue {
			p.ask(holding("u"))
		}
		p.ask(holding("v"))
		synctest.Wait() // for Start to take the first
		if n := waits(p); n != 2 {
			t.Errorf("%d wait, want 2", n)
		}
		time.Sleep(pressAgain)
		synctest.Wait()
		if len(api.written()) != 1 || waits(p) != 0 {
			t.Errorf("%d writes and %d wait, want 1 and none", len(api.written()), waits(p))
		}
		p.ask(holding("u")) // it is asked about again, once that has an effect or not
		time.Sleep(pressAgain)
		synctest.Wait()
		if len(api.written()) != 2 {
			t.Errorf("%d writes, want a second one", len(api.written()))
		}
	})
}
