// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package danmep

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubetest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// startWatcher starts a Watcher of the DanmEps.
func (b *testPublisher) startWatcher(t *testing.T) *Watcher {
	t.Helper()
	ctx, conn := kubetest.LogContext(t), kubetest.Connect(t, b.env)
	w, err := Watch(ctx, conn, WatcherOptions{
		Records: b.journal.List, Recheck: b.Recheck, NodeGone: func() bool { return false },
	})
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Start(ctx, t, conn.Cache.Start)
	kubetest.Start(ctx, t, w.Run)
	return w
}

// deleteByForce deletes the DanmEp with its finalizer, as a restore of an older state does, and
// returns its UID.
func (b *testPublisher) deleteByForce(t *testing.T) types.UID {
	t.Helper()
	ep := b.endpoint(t.Context())
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := errors.Join(b.env.Client.Patch(t.Context(), ep, patch), b.env.Client.Delete(t.Context(), ep)); err != nil {
		t.Fatal(err)
	}
	return ep.UID
}

// awaitRecreated waits for a DanmEp with another UID, which is journalled.
func (b *testPublisher) awaitRecreated(t *testing.T, deleted types.UID) *v1.DanmEp {
	t.Helper()
	var ep *v1.DanmEp
	kubetest.Eventually(t, "the DanmEp to be created again", func(ctx context.Context) error {
		if ep = b.endpoint(ctx); ep == nil || ep.UID == deleted {
			return fmt.Errorf("DanmEp is %+v", ep)
		}
		rec, err := b.journal.Get(b.rec.ContainerID, b.rec.IfName)
		if err != nil || rec.Interfaces[0].EndpointUID != string(ep.UID) {
			return fmt.Errorf("record %+v: %w", rec, err)
		}
		return nil
	})
	return ep
}

// recreatedCalls returns the calls when a DanmEp is published, goes missing and is published again.
func recreatedCalls() []string {
	return []string{
		"published 10.9.0.5 endpoint=true",
		"missing 10.9.0.5 endpoint=false",
		"published 10.9.0.5 endpoint=true",
	}
}

// A missing DanmEp of an attached sandbox is created again.
func TestMissingDanmEpIsRecreated(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		// watching starts the Watcher before the deletion.
		watching bool
	}{
		"WhileWatching": {reason: "The Watcher receives the deletion.", watching: true},
		"WhileStopped":  {reason: "The Watcher checks the journal at its start."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestPublisher(t, apitest.Start(t), interceptor.Funcs{})
			b.Publish(b.rec)
			b.awaitPublished(t)
			if tc.watching {
				w := b.startWatcher(t)
				kubetest.Eventually(t, "the cache to be filled", func(context.Context) error {
					if !w.synced() {
						return errors.New("not yet")
					}
					return nil
				})
			}
			deleted := b.deleteByForce(t)
			if !tc.watching {
				b.startWatcher(t)
			}
			ep := b.awaitRecreated(t, deleted)
			if got := ep.Spec.Interface.Address; got != "10.9.0.5/24" {
				t.Errorf("%s: got address %s, want the one before", tc.reason, got)
			}
			kubetest.Eventually(t, "the address to leave the entry", func(context.Context) error {
				if diff := cmp.Diff(recreatedCalls(), b.coverage.all()); diff != "" {
					return errors.New(diff)
				}
				return nil
			})
			b.release(t)
			b.awaitDeleted(t)
			b.expect(t, append(recreatedCalls(), completeCalls()[1:]...)...)
		})
	}
}

// A DanmEp without the finalizer, as after a forced uninstallation, gets it again at the daemon's start.
func TestDanmEpGetsItsFinalizerAgain(t *testing.T) {
	t.Parallel()
	b := newTestPublisher(t, apitest.Start(t), interceptor.Funcs{})
	b.Publish(b.rec)
	b.awaitPublished(t)
	ep := b.endpoint(t.Context())
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := b.env.Client.Patch(t.Context(), ep, patch); err != nil {
		t.Fatal(err)
	}
	b.startWatcher(t)
	kubetest.Eventually(t, "the finalizer", func(ctx context.Context) error {
		if got := b.endpoint(ctx); got == nil || got.UID != ep.UID || lacksFinalizer(got) {
			return fmt.Errorf("DanmEp is %+v", got)
		}
		return nil
	})
	b.expect(t, completeCalls()[0])
}

// A DanmEp that a DEL deletes is not missing.
func TestReleasedEndpointIsNotMissing(t *testing.T) {
	t.Parallel()
	b := newTestPublisher(t, apitest.Start(t), interceptor.Funcs{})
	w := b.startWatcher(t)
	b.Publish(b.rec)
	b.awaitPublished(t)
	b.release(t)
	b.awaitDeleted(t)
	failures := w.queue.NumRequeues(checkKey)
	if err := w.checkRecords(t.Context()); err != nil || failures != 0 {
		t.Errorf("check: got error %v after %d failures, want neither", err, failures)
	}
	b.expect(t, completeCalls()...)
}

// A stale cache makes the Publisher read the DanmEp, and nothing else.
func TestStaleCacheIsHarmless(t *testing.T) {
	t.Parallel()
	b := newTestPublisher(t, apitest.Start(t), interceptor.Funcs{})
	b.Publish(b.rec)
	b.awaitPublished(t)
	rec, err := b.journal.Get(b.rec.ContainerID, b.rec.IfName)
	if err != nil {
		t.Fatal(err)
	}
	rechecks, nodeGone := 0, true
	w := &Watcher{cached: interceptor.NewClient(b.env.Client, interceptor.Funcs{Get: getNotFound}), WatcherOptions: WatcherOptions{
		Records: func() ([]*attach.Record, error) {
			return []*attach.Record{rec}, errors.New("another record is corrupt")
		},
		Recheck:  func(rec *attach.Record) { rechecks++; b.Recheck(rec) },
		NodeGone: func() bool { return nodeGone },
	}}
	if err := w.checkRecords(kubetest.LogContext(t)); err != nil || rechecks != 0 {
		t.Errorf("check without a Node: got error %v and %d rechecks, want neither", err, rechecks)
	}
	nodeGone = false
	if err := w.checkRecords(kubetest.LogContext(t)); err != nil || rechecks != 1 {
		t.Errorf("check: got error %v and %d rechecks, want 1 recheck", err, rechecks)
	}
	kubetest.Eventually(t, "the Publisher to read the DanmEp", func(context.Context) error {
		if _, due := b.recheckDue.Load(rec.Key()); due || b.Pending() > 0 {
			return errors.New("not yet")
		}
		return nil
	})
	b.expect(t, completeCalls()[0])
}

// getNotFound is the Get of an empty cache.
func getNotFound(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "danmeps"}, key.Name)
}
