// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package cluster

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
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// watchEndpoints makes the bench watch its DanmEps.
func (b *bench) watchEndpoints(t *testing.T) *DanmEpWatcher {
	t.Helper()
	ctx, conn := logged(t), connect(t, b.env)
	v, err := WatchDanmEps(ctx, conn, DanmEpWatcherOptions{
		Records: b.journal.List, Recheck: b.Recheck, NodeGone: func() bool { return false },
	})
	if err != nil {
		t.Fatal(err)
	}
	start(ctx, t, conn.Cache.Start)
	start(ctx, t, v.Run)
	return v
}

// tear removes the DanmEp by force: what an older state of the store looks like.
func (b *bench) tear(t *testing.T) types.UID {
	t.Helper()
	ep := b.endpoint(t.Context())
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := errors.Join(b.env.Client.Patch(t.Context(), ep, patch), b.env.Client.Delete(t.Context(), ep)); err != nil {
		t.Fatal(err)
	}
	return ep.UID
}

// back waits for the DanmEp of another UID, and that it is journalled.
func (b *bench) back(t *testing.T, torn types.UID) *v1.DanmEp {
	t.Helper()
	var ep *v1.DanmEp
	wait(t, "the DanmEp to come back", func(ctx context.Context) error {
		if ep = b.endpoint(ctx); ep == nil || ep.UID == torn {
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

// again are the calls when a DanmEp was made, torn away, and made again.
func again() []string {
	return []string{
		"published 10.9.0.5 endpoint=true",
		"missing 10.9.0.5 endpoint=false",
		"published 10.9.0.5 endpoint=true",
	}
}

func TestMissingDanmEpIsRecreated(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		// before watches before the DanmEp goes.
		before bool
	}{
		"WhileWatching": {reason: "an event tells of it", before: true},
		"WhileNoDaemon": {reason: "at its start the daemon compares its journal"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, apitest.Start(t), interceptor.Funcs{})
			b.Publish(b.rec)
			b.published(t)
			if tc.before {
				v := b.watchEndpoints(t)
				wait(t, "the cache to be filled", func(context.Context) error {
					if !v.synced() {
						return errors.New("not yet")
					}
					return nil
				})
			}
			torn := b.tear(t)
			if !tc.before {
				b.watchEndpoints(t)
			}
			ep := b.back(t, torn)
			if got := ep.Spec.Interface.Address; got != "10.9.0.5/24" {
				t.Errorf("%s: the address is %s, want the former", tc.reason, got)
			}
			wait(t, "the address to be the DanmEp's", func(context.Context) error {
				if diff := cmp.Diff(again(), b.coverage.all()); diff != "" {
					return errors.New(diff)
				}
				return nil
			})
			b.release(t)
			b.forgotten(t)
			b.expect(t, append(again(), orderly()[1:]...)...)
		})
	}
}

// What a DEL removes is not missed.
func TestReleasedEndpointIsNotMissed(t *testing.T) {
	t.Parallel()
	b := newBench(t, apitest.Start(t), interceptor.Funcs{})
	v := b.watchEndpoints(t)
	b.Publish(b.rec)
	b.published(t)
	b.release(t)
	b.forgotten(t)
	looked := v.queue.NumRequeues(danmEpCheckKey)
	if err := v.checkRecords(t.Context()); err != nil || looked != 0 {
		t.Errorf("look: %v after %d failures", err, looked)
	}
	b.expect(t, orderly()...)
}

// A cache that is behind makes the publisher ask, and nothing else.
func TestStaleCacheIsNoLoss(t *testing.T) {
	t.Parallel()
	b := newBench(t, apitest.Start(t), interceptor.Funcs{})
	b.Publish(b.rec)
	b.published(t)
	rec, err := b.journal.Get(b.rec.ContainerID, b.rec.IfName)
	if err != nil {
		t.Fatal(err)
	}
	asked, gone := 0, true
	v := &DanmEpWatcher{cached: interceptor.NewClient(b.env.Client, interceptor.Funcs{Get: empty}), DanmEpWatcherOptions: DanmEpWatcherOptions{
		Records:  func() ([]*attach.Record, error) { return []*attach.Record{rec}, errors.New("another one is damaged") },
		Recheck:  func(rec *attach.Record) { asked++; b.Recheck(rec) },
		NodeGone: func() bool { return gone },
	}}
	if err := v.checkRecords(logged(t)); err != nil || asked != 0 {
		t.Errorf("look: %v, asked %d times: the controller removes what a deleted Node had", err, asked)
	}
	gone = false
	if err := v.checkRecords(logged(t)); err != nil || asked != 1 {
		t.Errorf("look: %v, asked %d times, want once", err, asked)
	}
	wait(t, "the publisher to ask", func(context.Context) error {
		if _, waits := b.recheckDue.Load(recordKey{rec.ContainerID, rec.IfName}); waits || b.Pending() > 0 {
			return errors.New("not yet")
		}
		return nil
	})
	b.expect(t, orderly()[0])
}

// empty is the Get of a cache without objects.
func empty(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "danmeps"}, key.Name)
}
