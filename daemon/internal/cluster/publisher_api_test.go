// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package cluster

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
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// coverage notes its calls, and whether the DanmEp existed at each.
type coverage struct {
	mu     sync.Mutex
	calls  []string
	exists func() bool
}

func (c *coverage) note(what string, v4 netip.Addr) {
	there := c.exists()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf("%s %s endpoint=%t", what, v4, there))
}

func (c *coverage) Published(_ claims.Key, _ string, v4, _ netip.Addr) { c.note("published", v4) }

func (c *coverage) Return(_ context.Context, _ claims.Key, _ string, v4, _ netip.Addr) error {
	c.note("return", v4)
	return nil
}

func (c *coverage) Missing(_ claims.Key, _ string, v4, _ netip.Addr) { c.note("missing", v4) }

func (c *coverage) Forget(claims.Key, string, netip.Addr, netip.Addr) {}

func (c *coverage) Free(_ context.Context, _ claims.Key, _ string, v4, _ netip.Addr) error {
	c.note("free", v4)
	return nil
}

func (c *coverage) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// bench is a publisher at work, with what it works on.
type bench struct {
	*Publisher
	env      *apitest.Env
	journal  *journal.Journal
	coverage *coverage
	rec      *attach.Record
}

// newBench journals one record and starts a publisher whose requests pass
// through faults.
func newBench(t *testing.T, env *apitest.Env, faults interceptor.Funcs) *bench {
	t.Helper()
	ctx := logged(t)
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal.db"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	direct, err := client.NewWithWatch(env.ConfigAs(apitest.NodeDaemon(node)), client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{env: env, journal: j, coverage: &coverage{}, rec: sandbox(env.Namespace(t))}
	b.coverage.exists = func() bool { return b.endpoint(ctx) != nil }
	b.Publisher = NewPublisher(PublisherConfig{
		Client: interceptor.NewClient(direct, faults), Records: j, Coverage: b.coverage, Recovery: b.coverage,
		Node: func() (NodeIdentity, bool) { return NodeIdentity{Name: node, UID: "node-uid"}, true },
	})
	if err := j.Put(b.rec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	start(ctx, t, b.Run)
	return b
}

// endpoint reads the record's DanmEp as the admin; nil when there is none.
func (b *bench) endpoint(ctx context.Context) *v1.DanmEp {
	ep := &v1.DanmEp{}
	key := client.ObjectKey{Namespace: b.rec.PodNamespace, Name: b.rec.Interfaces[0].EndpointName}
	if err := b.env.Client.Get(ctx, key, ep); err != nil {
		return nil
	}
	return ep
}

// published waits until the DanmEp's UID is journalled, and its address moved.
func (b *bench) published(t *testing.T) {
	t.Helper()
	wait(t, "the DanmEp to be journalled", func(context.Context) error {
		rec, err := b.journal.Get(b.rec.ContainerID, b.rec.IfName)
		if err != nil || rec.Interfaces[0].EndpointUID == "" || len(b.coverage.all()) == 0 {
			return fmt.Errorf("record %+v: %w", rec, err)
		}
		return nil
	})
}

// release journals the end of the sandbox as DEL does.
func (b *bench) release(t *testing.T) {
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

// forgotten waits until the record is gone.
func (b *bench) forgotten(t *testing.T) {
	t.Helper()
	wait(t, "the record to go", func(context.Context) error {
		if _, err := b.journal.Get(b.rec.ContainerID, b.rec.IfName); !errors.Is(err, attach.ErrNotFound) {
			return fmt.Errorf("still there: %w", err)
		}
		return nil
	})
}

// expect compares the calls of the coverage.
func (b *bench) expect(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, b.coverage.all()); diff != "" {
		t.Errorf("order of writes (-want +got):\n%s", diff)
	}
}

// orderly is what a whole life looks like.
func orderly() []string {
	return []string{
		"published 10.9.0.5 endpoint=true",
		"return 10.9.0.5 endpoint=true",
		"free 10.9.0.5 endpoint=false",
	}
}

func TestEndpointLivesFromPublishToRelease(t *testing.T) {
	t.Parallel()
	b := newBench(t, apitest.Start(t), interceptor.Funcs{})
	b.Publish(b.rec)
	b.published(t)
	got := b.endpoint(t.Context())
	want := v1.DanmEpSpec{
		NetworkName: "n", NetworkUID: "net-uid", NetworkType: "macvlan", APIType: v1.KindClusterNetwork,
		EndpointID: b.rec.Interfaces[0].EndpointName,
		Interface: v1.DanmEpInterface{Name: "eth0", Address: "10.9.0.5/24", MacAddress: "02:00:00:00:00:05", MTU: 1500,
			Proutes: map[string]string{"10.1.0.0/16": "10.9.0.1"}},
		Host: node, HostUID: "node-uid", Pod: "pod", PodUID: "pod-uid", CID: b.rec.ContainerID, Netns: "/run/netns/x",
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
		t.Error("somebody else's delete released the DanmEp, want only a request")
	}
	b.release(t)
	b.forgotten(t)
	b.expect(t, orderly()...)
	if ep := b.endpoint(t.Context()); ep != nil {
		t.Errorf("DanmEp is still there: %+v", ep.ObjectMeta)
	}
}

// move does what the controller does when the namespace of a DanmEp is being deleted.
func (b *bench) move(ctx context.Context, t *testing.T, to string) *v1.DanmEp {
	t.Helper()
	moved := b.makeMoved(ctx, t, to)
	if removed, err := kube.RemoveEndpoint(ctx, b.env.Client, b.endpoint(ctx)); !removed || err != nil {
		t.Fatalf("removed is %t, %v", removed, err)
	}
	return moved
}

// makeMoved is the first half of that.
func (b *bench) makeMoved(ctx context.Context, t *testing.T, to string) *v1.DanmEp {
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

// A DanmEp that the controller moved to another namespace is not missing, and ends with the
// sandbox, before its address is free.
func TestMovedEndpointIsReleased(t *testing.T) {
	t.Parallel()
	b := newBench(t, apitest.Start(t), interceptor.Funcs{})
	b.Publish(b.rec)
	b.published(t)
	moved := b.move(t.Context(), t, b.env.Namespace(t))
	rec, err := b.journal.Get(b.rec.ContainerID, b.rec.IfName)
	if err != nil {
		t.Fatal(err)
	}
	if gone, err := b.missingDanmEps(t.Context(), rec); len(gone) > 0 || err != nil {
		t.Errorf("missing %v, %v; want none: that would begin a recovery", gone, err)
	}
	b.coverage.exists = func() bool {
		return b.env.Client.Get(context.WithoutCancel(t.Context()), client.ObjectKeyFromObject(moved), &v1.DanmEp{}) == nil
	}
	b.release(t)
	b.forgotten(t)
	b.expect(t, orderly()...)
}

// DEL and the controller's move meet: in either order no DanmEp covers the address
// when it is freed.
func TestReleaseMeetsMove(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	to := env.Namespace(t)
	var b *bench
	var once sync.Once
	var moved *v1.DanmEp
	ready := make(chan struct{})
	b = newBench(t, env, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			<-ready
			once.Do(func() { moved = b.move(ctx, t, to) })
			return c.Patch(ctx, o, p, opts...)
		},
	})
	close(ready)
	b.Publish(b.rec)
	b.published(t)
	b.release(t)
	b.forgotten(t)
	if err := b.env.Client.Get(t.Context(), client.ObjectKeyFromObject(moved), &v1.DanmEp{}); !apierrors.IsNotFound(err) {
		t.Errorf("the moved DanmEp covers an address that is free: %v", err)
	}
	b.expect(t, orderly()...)
}

// The node ends a DanmEp that the controller is about to move: both go.
func TestRemovalEndsTheMove(t *testing.T) {
	t.Parallel()
	b := newBench(t, apitest.Start(t), interceptor.Funcs{})
	b.Publish(b.rec)
	b.published(t)
	ep, moved := b.endpoint(t.Context()), b.makeMoved(t.Context(), t, b.env.Namespace(t))
	if err := b.env.Client.Delete(t.Context(), ep.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	ep = b.endpoint(t.Context())
	ep.DeletionTimestamp.Time = ep.DeletionTimestamp.Add(-2 * minMoveDelay) // it was asked for long ago
	if err := b.danmEps.remove(t.Context(), ep); err != nil {
		t.Fatal(err)
	}
	if b.endpoint(t.Context()) != nil {
		t.Error("the DanmEp is still there")
	}
	if err := b.env.Client.Get(t.Context(), client.ObjectKeyFromObject(moved), &v1.DanmEp{}); !apierrors.IsNotFound(err) {
		t.Errorf("the moved DanmEp would cover an address that is free: %v", err)
	}
}

// Each answer is lost once: what was asked for has happened nonetheless.
func TestLostAnswersAreNoHarm(t *testing.T) {
	t.Parallel()
	lost := apierrors.NewTimeoutError("answer lost", 0)
	var create, patch, remove sync.Once
	after := func(once *sync.Once, err error) error {
		once.Do(func() {
			if err == nil {
				err = lost
			}
		})
		return err
	}
	b := newBench(t, apitest.Start(t), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return after(&create, c.Create(ctx, o, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return after(&patch, c.Patch(ctx, o, p, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return after(&remove, c.Delete(ctx, o, opts...))
		},
	})
	b.Publish(b.rec)
	b.published(t)
	b.release(t)
	b.forgotten(t)
	calls := b.coverage.all()
	want := orderly()
	if got := []string{calls[0], calls[len(calls)-1]}; !slices.Equal(got, []string{want[0], want[2]}) {
		t.Errorf("calls %q, want to begin and end as %q", calls, want)
	}
	if slices.Contains(calls[:len(calls)-1], want[2]) {
		t.Errorf("calls %q free the address twice", calls)
	}
}

// DEL may come while the DanmEp is being made: it must not stay behind.
func TestReleaseOvertakesPublish(t *testing.T) {
	t.Parallel()
	asked, goOn := make(chan struct{}), make(chan struct{})
	b := newBench(t, apitest.Start(t), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			close(asked)
			<-goOn
			return c.Create(ctx, o, opts...)
		},
	})
	b.Publish(b.rec)
	<-asked
	b.release(t)
	close(goOn)
	b.forgotten(t)
	b.expect(t, orderly()...)
}

func TestReleaseWithoutEndpoint(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		before func(*testing.T, *bench)
		want   []string
	}{
		"NeverMade": {
			reason: "the entry covers the address all the time",
			before: func(*testing.T, *bench) {},
			want:   []string{"free 10.9.0.5 endpoint=false"},
		},
		"OtherOfThatName": {
			reason: "another endpoint's DanmEp is not touched, and does not prove that the address is ours",
			before: func(t *testing.T, b *bench) {
				t.Helper()
				ep := newDanmEp(b.rec, &b.rec.Interfaces[0], NodeIdentity{Name: "other"})
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
			b := newBench(t, apitest.Start(t), interceptor.Funcs{})
			tc.before(t, b)
			b.release(t)
			b.forgotten(t)
			if diff := cmp.Diff(tc.want, b.coverage.all()); diff != "" {
				t.Errorf("%s: calls (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// The address of a DanmEp that cannot be made stays in the node's entry.
func TestEndpointThatCannotBeMade(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		spoil  func(*testing.T, *bench)
	}{
		"Quota": {
			reason: "the namespace's quota is used up",
			spoil: func(t *testing.T, b *bench) {
				t.Helper()
				q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: b.rec.PodNamespace, Name: "q"}}
				q.Spec.Hard = corev1.ResourceList{"count/danmeps.danm.io": resource.MustParse("0")}
				if err := b.env.Client.Create(t.Context(), q); err != nil {
					t.Fatal(err)
				}
				// As the quota controller would.
				q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: q.Spec.Hard}
				if err := b.env.Client.Status().Update(t.Context(), q); err != nil {
					t.Fatal(err)
				}
				wait(t, "the quota to be in force", func(ctx context.Context) error {
					ep := newDanmEp(b.rec, &b.rec.Interfaces[0], NodeIdentity{Name: node})
					if err := b.env.Client.Create(ctx, ep, client.DryRunAll); !apierrors.IsForbidden(err) {
						return fmt.Errorf("got error %w, want forbidden", err)
					}
					return nil
				})
			},
		},
		"NamespaceTerminating": {
			reason: "the namespace is being deleted",
			spoil: func(t *testing.T, b *bench) {
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
			tried := make(chan struct{}, 100)
			b := newBench(t, apitest.Start(t), interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					defer func() { tried <- struct{}{} }()
					return c.Create(ctx, o, opts...)
				},
			})
			tc.spoil(t, b)
			b.Publish(b.rec)
			<-tried
			if got := b.coverage.all(); len(got) > 0 {
				t.Errorf("%s: calls %q, want none before DEL", tc.reason, got)
			}
			b.release(t)
			b.forgotten(t)
			b.expect(t, "free 10.9.0.5 endpoint=false")
		})
	}
}

func TestPublisherOutlivesTheAPIServer(t *testing.T) {
	t.Parallel()
	env := apitest.New(t)
	b := newBench(t, env, interceptor.Funcs{})
	if err := env.ControlPlane.Kill(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	b.Publish(b.rec)
	wait(t, "a failed attempt", func(context.Context) error {
		if b.queue.NumRequeues(recordKey{b.rec.ContainerID, b.rec.IfName}) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	if err := env.ControlPlane.StartPart(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	b.published(t)
	b.release(t)
	b.forgotten(t)
	b.expect(t, orderly()...)
}
