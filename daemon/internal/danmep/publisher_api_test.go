// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package danmep

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubetest"
	"github.com/patchbay-cni/patchbay/daemon/internal/nodestate"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// recordingCoverage records its calls, and whether the DanmEp existed at each.
type recordingCoverage struct {
	mu     sync.Mutex
	calls  []string
	exists func() bool
}

func (c *recordingCoverage) record(method string, v4 netip.Addr) {
	exists := c.exists()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf("%s %s endpoint=%t", method, v4, exists))
}

func (c *recordingCoverage) MarkPublished(_ network.Key, _ string, v4, _ netip.Addr) {
	c.record("published", v4)
}

func (c *recordingCoverage) ReturnToEntry(_ context.Context, _ network.Key, _ string, v4, _ netip.Addr) error {
	c.record("return", v4)
	return nil
}

func (c *recordingCoverage) DanmEpMissing(_ network.Key, _ string, v4, _ netip.Addr) {
	c.record("missing", v4)
}

func (c *recordingCoverage) Forget(network.Key, string, netip.Addr, netip.Addr) {}

func (c *recordingCoverage) Free(_ context.Context, _ network.Key, _ string, v4, _ netip.Addr) error {
	c.record("free", v4)
	return nil
}

// all returns the calls.
func (c *recordingCoverage) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// testPublisher is a running Publisher with one record in its journal.
type testPublisher struct {
	*Publisher
	env      *apitest.Env
	journal  *journal.Journal
	coverage *recordingCoverage
	rec      *attach.Record
}

// newTestPublisher journals one record and starts a Publisher whose requests pass through faults.
func newTestPublisher(t *testing.T, env *apitest.Env, faults interceptor.Funcs) *testPublisher {
	t.Helper()
	ctx := kubetest.LogContext(t)
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal.db"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	direct, err := client.NewWithWatch(env.ConfigAs(apitest.NodeDaemon(kubetest.Node)), client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	b := &testPublisher{env: env, journal: j, coverage: &recordingCoverage{}, rec: newRecord(env.Namespace(t))}
	b.coverage.exists = func() bool { return b.endpoint(ctx) != nil }
	b.Publisher = NewPublisher(PublisherConfig{
		Client: interceptor.NewClient(direct, faults), Records: j, Coverage: b.coverage, Recovery: b.coverage,
		Node: func() (nodestate.Identity, bool) {
			return nodestate.Identity{Name: kubetest.Node, UID: "node-uid"}, true
		},
	})
	if err := j.Put(b.rec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	kubetest.Start(ctx, t, b.Run)
	return b
}

// endpoint reads the record's DanmEp as an admin. It returns nil when there is none.
func (b *testPublisher) endpoint(ctx context.Context) *v1.DanmEp {
	ep := &v1.DanmEp{}
	key := client.ObjectKey{Namespace: b.rec.PodNamespace, Name: b.rec.Interfaces[0].EndpointName}
	if err := b.env.Client.Get(ctx, key, ep); err != nil {
		return nil
	}
	return ep
}

// awaitPublished waits until the DanmEp's UID is journalled and its address has left the entry.
func (b *testPublisher) awaitPublished(t *testing.T) {
	t.Helper()
	kubetest.Eventually(t, "the DanmEp to be journalled", func(context.Context) error {
		rec, err := b.journal.Get(b.rec.ContainerID, b.rec.IfName)
		if err != nil || rec.Interfaces[0].EndpointUID == "" || len(b.coverage.all()) == 0 {
			return fmt.Errorf("record %+v: %w", rec, err)
		}
		return nil
	})
}

// release marks the record as released, as DEL does.
func (b *testPublisher) release(t *testing.T) {
	t.Helper()
	err := b.journal.Update(b.rec.ContainerID, b.rec.IfName, func(r *attach.Record) error {
		r.State = attach.Released
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Release(b.rec)
}

// awaitDeleted waits until the record is deleted.
func (b *testPublisher) awaitDeleted(t *testing.T) {
	t.Helper()
	kubetest.Eventually(t, "the record to be deleted", func(context.Context) error {
		if _, err := b.journal.Get(b.rec.ContainerID, b.rec.IfName); !errors.Is(err, attach.ErrNotFound) {
			return fmt.Errorf("the record still exists: %w", err)
		}
		return nil
	})
}

// expect compares the calls of the coverage with want.
func (b *testPublisher) expect(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, b.coverage.all()); diff != "" {
		t.Errorf("calls in order (-want +got):\n%s", diff)
	}
}

// completeCalls returns the calls from the publication of a DanmEp to its release.
func completeCalls() []string {
	return []string{
		"published 10.9.0.5 endpoint=true",
		"return 10.9.0.5 endpoint=true",
		"free 10.9.0.5 endpoint=false",
	}
}

// A DanmEp exists from the publication of its record to its release, also when another client deletes
// it.
func TestEndpointLivesFromPublishToRelease(t *testing.T) {
	t.Parallel()
	b := newTestPublisher(t, apitest.Start(t), interceptor.Funcs{})
	b.Publish(b.rec)
	b.awaitPublished(t)
	got := b.endpoint(t.Context())
	want := v1.DanmEpSpec{
		NetworkName: "n", NetworkUID: "net-uid", NetworkType: "macvlan", APIType: v1.KindClusterNetwork,
		EndpointID: b.rec.Interfaces[0].EndpointName,
		Interface: v1.DanmEpInterface{Name: "eth0", Address: "10.9.0.5/24", MacAddress: "02:00:00:00:00:05", MTU: 1500,
			Proutes: map[string]string{"10.1.0.0/16": "10.9.0.1"}},
		Host: kubetest.Node, HostUID: "node-uid", Pod: "pod", PodUID: "pod-uid", CID: b.rec.ContainerID, Netns: "/run/netns/x",
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("DanmEp's spec (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(b.rec.Labels, got.Labels); diff != "" {
		t.Errorf("DanmEp's labels (-want +got):\n%s", diff)
	}
	if err := b.env.Client.Delete(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if b.endpoint(t.Context()) == nil {
		t.Error("got no DanmEp after a delete by another client, want it to keep its finalizer")
	}
	b.release(t)
	b.awaitDeleted(t)
	b.expect(t, completeCalls()...)
	if ep := b.endpoint(t.Context()); ep != nil {
		t.Errorf("got DanmEp %+v after the release, want none", ep.ObjectMeta)
	}
}

// move moves the DanmEp to another namespace, as the controller does when its namespace is deleted.
func (b *testPublisher) move(ctx context.Context, t *testing.T, to string) *v1.DanmEp {
	t.Helper()
	moved := b.createMoved(ctx, t, to)
	if removed, err := kube.RemoveEndpoint(ctx, b.env.Client, b.endpoint(ctx)); !removed || err != nil {
		t.Fatalf("remove the DanmEp: got %t and error %v, want true", removed, err)
	}
	return moved
}

// createMoved creates the DanmEp in the other namespace, which is the first half of a move.
func (b *testPublisher) createMoved(ctx context.Context, t *testing.T, to string) *v1.DanmEp {
	t.Helper()
	ep := b.endpoint(ctx)
	moved := &v1.DanmEp{ObjectMeta: metav1.ObjectMeta{
		Namespace: to, GenerateName: "moved-", Finalizers: []string{v1.NodeFinalizer},
		Annotations: map[string]string{v1.MovedFromAnnotation: client.ObjectKeyFromObject(ep).String()},
	}, Spec: ep.Spec}
	if err := b.env.Client.Create(ctx, moved); err != nil {
		t.Fatal(err)
	}
	return moved
}

// A DanmEp that the controller moved is not missing. A release deletes it before it frees its
// address.
func TestMovedEndpointIsReleased(t *testing.T) {
	t.Parallel()
	b := newTestPublisher(t, apitest.Start(t), interceptor.Funcs{})
	b.Publish(b.rec)
	b.awaitPublished(t)
	moved := b.move(t.Context(), t, b.env.Namespace(t))
	rec, err := b.journal.Get(b.rec.ContainerID, b.rec.IfName)
	if err != nil {
		t.Fatal(err)
	}
	if missing, err := b.missingDanmEps(t.Context(), rec); len(missing) > 0 || err != nil {
		t.Errorf("got missing DanmEps %v and error %v, want neither", missing, err)
	}
	b.coverage.exists = func() bool {
		return b.env.Client.Get(context.WithoutCancel(t.Context()), client.ObjectKeyFromObject(moved), &v1.DanmEp{}) == nil
	}
	b.release(t)
	b.awaitDeleted(t)
	b.expect(t, completeCalls()...)
}

// The controller moves the DanmEp during a release. No DanmEp covers the address when it is freed.
func TestReleaseDuringMove(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	to := env.Namespace(t)
	var b *testPublisher
	var once sync.Once
	var moved *v1.DanmEp
	ready := make(chan struct{})
	b = newTestPublisher(t, env, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			<-ready
			once.Do(func() { moved = b.move(ctx, t, to) })
			return c.Patch(ctx, o, p, opts...)
		},
	})
	close(ready)
	b.Publish(b.rec)
	b.awaitPublished(t)
	b.release(t)
	b.awaitDeleted(t)
	if err := b.env.Client.Get(t.Context(), client.ObjectKeyFromObject(moved), &v1.DanmEp{}); !apierrors.IsNotFound(err) {
		t.Errorf("moved DanmEp of a freed address: got error %v, want NotFound", err)
	}
	b.expect(t, completeCalls()...)
}

// The node removes a DanmEp that the controller is about to move. Both DanmEps are deleted.
func TestRemoveEndsMove(t *testing.T) {
	t.Parallel()
	b := newTestPublisher(t, apitest.Start(t), interceptor.Funcs{})
	b.Publish(b.rec)
	b.awaitPublished(t)
	ep, moved := b.endpoint(t.Context()), b.createMoved(t.Context(), t, b.env.Namespace(t))
	if err := b.env.Client.Delete(t.Context(), ep.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	ep = b.endpoint(t.Context())
	ep.DeletionTimestamp.Time = ep.DeletionTimestamp.Add(-2 * minMoveDelay) // in deletion for long
	if err := b.danmEps.remove(t.Context(), ep); err != nil {
		t.Fatal(err)
	}
	if b.endpoint(t.Context()) != nil {
		t.Error("got a DanmEp after its removal, want none")
	}
	if err := b.env.Client.Get(t.Context(), client.ObjectKeyFromObject(moved), &v1.DanmEp{}); !apierrors.IsNotFound(err) {
		t.Errorf("moved DanmEp: got error %v, want NotFound", err)
	}
}

// The answer of each write is lost once, although the write succeeded. The Publisher repeats it
// without harm.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	answerLost := apierrors.NewTimeoutError("answer lost", 0)
	var create, patch, remove sync.Once
	loseOnce := func(once *sync.Once, err error) error {
		once.Do(func() {
			if err == nil {
				err = answerLost
			}
		})
		return err
	}
	b := newTestPublisher(t, apitest.Start(t), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return loseOnce(&create, c.Create(ctx, o, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return loseOnce(&patch, c.Patch(ctx, o, p, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return loseOnce(&remove, c.Delete(ctx, o, opts...))
		},
	})
	b.Publish(b.rec)
	b.awaitPublished(t)
	b.release(t)
	b.awaitDeleted(t)
	calls := b.coverage.all()
	want := completeCalls()
	if got := []string{calls[0], calls[len(calls)-1]}; !slices.Equal(got, []string{want[0], want[2]}) {
		t.Errorf("got calls %q, want the first and the last of %q", calls, want)
	}
	if slices.Contains(calls[:len(calls)-1], want[2]) {
		t.Errorf("got calls %q, want the address freed once", calls)
	}
}

// A DEL comes while the DanmEp is being created. The DanmEp must be deleted too.
func TestReleaseDuringPublish(t *testing.T) {
	t.Parallel()
	requested, proceed := make(chan struct{}), make(chan struct{})
	b := newTestPublisher(t, apitest.Start(t), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			close(requested)
			<-proceed
			return c.Create(ctx, o, opts...)
		},
	})
	b.Publish(b.rec)
	<-requested
	b.release(t)
	close(proceed)
	b.awaitDeleted(t)
	b.expect(t, completeCalls()...)
}

// A release without a DanmEp of its own frees only what the entry covers.
func TestReleaseWithoutEndpoint(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		prepare func(*testing.T, *testPublisher)
		want    []string
	}{
		"NeverCreated": {
			reason:  "The entry covers the address all the time.",
			prepare: func(*testing.T, *testPublisher) {},
			want:    []string{"free 10.9.0.5 endpoint=false"},
		},
		"OtherEndpoint": {
			reason: "The DanmEp of that name belongs to another endpoint and proves nothing.",
			prepare: func(t *testing.T, b *testPublisher) {
				t.Helper()
				ep := newDanmEp(b.rec, &b.rec.Interfaces[0], nodestate.Identity{Name: "other"})
				ep.Spec.EndpointID = "other"
				if err := b.env.Client.Create(t.Context(), ep); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"free 10.9.0.5 endpoint=true"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestPublisher(t, apitest.Start(t), interceptor.Funcs{})
			tc.prepare(t, b)
			b.release(t)
			b.awaitDeleted(t)
			if diff := cmp.Diff(tc.want, b.coverage.all()); diff != "" {
				t.Errorf("%s: calls (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// The address of a DanmEp that cannot be created stays in the node's entry.
func TestEndpointThatCannotBeMade(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		prevent func(*testing.T, *testPublisher)
	}{
		"Quota": {
			reason: "The quota of the namespace is exhausted.",
			prevent: func(t *testing.T, b *testPublisher) {
				t.Helper()
				q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: b.rec.PodNamespace, Name: "q"}}
				q.Spec.Hard = corev1.ResourceList{"count/danmeps.danm.io": resource.MustParse("0")}
				if err := b.env.Client.Create(t.Context(), q); err != nil {
					t.Fatal(err)
				}
				// The quota controller would write this status.
				q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: q.Spec.Hard}
				if err := b.env.Client.Status().Update(t.Context(), q); err != nil {
					t.Fatal(err)
				}
				kubetest.Eventually(t, "the quota to apply", func(ctx context.Context) error {
					ep := newDanmEp(b.rec, &b.rec.Interfaces[0], nodestate.Identity{Name: kubetest.Node})
					if err := b.env.Client.Create(ctx, ep, client.DryRunAll); !apierrors.IsForbidden(err) {
						return fmt.Errorf("got error %w, want forbidden", err)
					}
					return nil
				})
			},
		},
		"NamespaceTerminating": {
			reason: "The namespace is being deleted.",
			prevent: func(t *testing.T, b *testPublisher) {
				t.Helper()
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.rec.PodNamespace}}
				if err := b.env.Client.Delete(t.Context(), ns); err != nil {
					t.Fatal(err)
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attempted := make(chan struct{}, 100)
			b := newTestPublisher(t, apitest.Start(t), interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					defer func() { attempted <- struct{}{} }()
					return c.Create(ctx, o, opts...)
				},
			})
			tc.prevent(t, b)
			b.Publish(b.rec)
			<-attempted
			if got := b.coverage.all(); len(got) > 0 {
				t.Errorf("%s: got calls %q, want none before the DEL", tc.reason, got)
			}
			b.release(t)
			b.awaitDeleted(t)
			b.expect(t, "free 10.9.0.5 endpoint=false")
		})
	}
}

// The Publisher retries while the API server is down.
func TestPublisherWithoutAPIServer(t *testing.T) {
	t.Parallel()
	env := apitest.New(t)
	b := newTestPublisher(t, env, interceptor.Funcs{})
	if err := env.ControlPlane.Kill(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	b.Publish(b.rec)
	kubetest.Eventually(t, "a failed attempt", func(context.Context) error {
		if b.queue.NumRequeues(b.rec.Key()) == 0 {
			return errors.New("no attempt yet")
		}
		return nil
	})
	if err := env.ControlPlane.StartPart(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	b.awaitPublished(t)
	b.release(t)
	b.awaitDeleted(t)
	b.expect(t, completeCalls()...)
}
