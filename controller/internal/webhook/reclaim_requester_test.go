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

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// fakeClient is a fake API server with one TenantNetwork, or none. It counts writes.
type fakeClient struct {
	client.Client

	mu      sync.Mutex
	network *v1.TenantNetwork
	patches []string
}

// Get implements client.Client.
func (p *fakeClient) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	into, ok := obj.(*v1.TenantNetwork)
	if p.network == nil || !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "tenantnetworks"}, key.Name)
	}
	p.network.DeepCopyInto(into)
	return nil
}

// Status implements client.Client.
func (p *fakeClient) Status() client.SubResourceWriter { return fakeStatusWriter{fakeClient: p} }

// fakeStatusWriter writes the network's status.
type fakeStatusWriter struct {
	client.SubResourceWriter
	fakeClient *fakeClient
}

// Patch implements client.SubResourceWriter.
func (s fakeStatusWriter) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	p := s.fakeClient
	p.mu.Lock()
	defer p.mu.Unlock()
	data, err := patch.Data(obj)
	p.patches = append(p.patches, string(data))
	return err
}

// written returns the patches so far.
func (p *fakeClient) written() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.patches)
}

// queuedRequests returns the number of networks in the queue.
func queuedRequests(p *reclaimRequester) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queued)
}

// withPreallocatedAddresses returns a network of which a node holds addresses.
func withPreallocatedAddresses(uid types.UID) *v1.TenantNetwork {
	tn := &v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "net", UID: uid}}
	tn.Status.IPAM = &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{"node-1": {V4: "10.0.0.7"}}}
	return tn
}

// The content of the request is not trusted, because it may be forged.
func TestRequestReclaim(t *testing.T) {
	t.Parallel()
	type made func() *v1.TenantNetwork // within the bubble, for its clock
	with := func(uid types.UID) made { return func() *v1.TenantNetwork { return withPreallocatedAddresses(uid) } }
	pressed := func(ago time.Duration) made {
		return func() *v1.TenantNetwork {
			tn, at := withPreallocatedAddresses("u"), metav1.NewMicroTime(time.Now().Add(-ago))
			tn.Status.IPAM.ReclaimRequestTime = &at
			return tn
		}
	}
	none := func() *v1.TenantNetwork { return nil }
	idle := func() *v1.TenantNetwork {
		return &v1.TenantNetwork{ObjectMeta: withPreallocatedAddresses("u").ObjectMeta}
	}
	cases := map[string]struct {
		reason         string
		asked, network made
		want           int // writes
	}{
		"Held":      {reason: "A node holds pre-allocated addresses.", asked: with("u"), network: with("u"), want: 1},
		"NoUID":     {reason: "Without a UID the write would go to any network of that name.", asked: with(""), network: with("u")},
		"Other":     {reason: "The network was deleted and created again.", asked: with("u"), network: with("v")},
		"Gone":      {reason: "The network was deleted.", asked: with("u"), network: none},
		"MadeUp":    {reason: "No node holds addresses.", asked: with("u"), network: idle},
		"JustNow":   {reason: "Another replica has just sent the request.", asked: with("u"), network: pressed(time.Second)},
		"Long":      {reason: "The nodes have pre-allocated addresses again.", asked: pressed(time.Minute), network: pressed(time.Minute), want: 1},
		"Unheld":    {reason: "No address forbids the change.", asked: idle, network: with("u")},
		"Refreshed": {reason: "The nodes were asked before this change.", asked: pressed(time.Second), network: with("u")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := &fakeClient{network: tc.network()}
				p := start(t, api)
				p.enqueue(tc.asked())
				time.Sleep(reclaimInterval / 2)
				synctest.Wait()
				if len(api.written()) != tc.want {
					t.Fatalf("%s\n%d writes, want %d: %v", tc.reason, len(api.written()), tc.want, api.written())
				}
				if tc.want > 0 && (!strings.Contains(api.written()[0], `"uid":"u"`) || !strings.Contains(api.written()[0], `"reclaimRequestTime"`)) {
					t.Errorf("%s\nwrote %s", tc.reason, api.written()[0])
				}
			})
		})
	}
}

func start(t *testing.T, api client.Client) *reclaimRequester {
	t.Helper()
	p := newReclaimRequester(api, logr.Discard())
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

// A hundred rejections of one network cause one write, and do not block other networks.
func TestRequestReclaimOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &fakeClient{network: withPreallocatedAddresses("u")}
		p := start(t, api)
		for range 5 * reclaimQueueSize {
			p.enqueue(withPreallocatedAddresses("u"))
		}
		p.enqueue(withPreallocatedAddresses("v"))
		synctest.Wait() // for Start to take the first
		if n := queuedRequests(p); n != 2 {
			t.Errorf("%d wait, want 2", n)
		}
		time.Sleep(reclaimInterval)
		synctest.Wait()
		if len(api.written()) != 1 || queuedRequests(p) != 0 {
			t.Errorf("%d writes and %d wait, want 1 and none", len(api.written()), queuedRequests(p))
		}
		p.enqueue(withPreallocatedAddresses("u")) // it is asked about again, once that has an effect or not
		time.Sleep(reclaimInterval)
		synctest.Wait()
		if len(api.written()) != 2 {
			t.Errorf("%d writes, want a second one", len(api.written()))
		}
	})
}
