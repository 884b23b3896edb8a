// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// cluster is a fake API server with Nodes only. It records writes.
type cluster struct {
	client.Client
	nodes  map[string]string
	writes []string
}

func (c *cluster) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	uid, ok := c.nodes[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, key.Name)
	}
	obj.SetUID(types.UID(uid))
	return nil
}

func (c *cluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	into, ok := list.(*metav1.PartialObjectMetadataList)
	if !ok {
		return nil // no DanmEp
	}
	for name, uid := range c.nodes {
		into.Items = append(into.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}})
	}
	return nil
}

func (c *cluster) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(obj)
	c.writes = append(c.writes, string(data))
	return err
}

// Status returns the writer of conditions.
func (c *cluster) Status() client.SubResourceWriter { return conditionWriter{to: c} }

type conditionWriter struct {
	client.SubResourceWriter
	to *cluster
}

func (w conditionWriter) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	w.to.writes = append(w.to.writes, "conditions")
	return nil
}

// fakeGarbageCollector records calls, and returns what the test sets.
type fakeGarbageCollector struct {
	calls   []string
	found   gc.Findings
	awaited []string
	err     error
}

func (s *fakeGarbageCollector) RepairBitmap(context.Context, network.Key) (gc.Findings, error) {
	s.calls = append(s.calls, "audit")
	return s.found, s.err
}

func (s *fakeGarbageCollector) FreeGoneNodes(_ context.Context, _ network.Key, gone map[string]string) (int64, error) {
	s.calls = append(s.calls, fmt.Sprintf("evict %v", gone))
	return 1, s.err
}

func (s *fakeGarbageCollector) AddFinalizer(context.Context, network.Key) error {
	s.calls = append(s.calls, "protect")
	return s.err
}

func (s *fakeGarbageCollector) RemoveFinalizer(context.Context, network.Key) (bool, error) {
	s.calls = append(s.calls, "end deletion")
	return s.err == nil, s.err
}

func (s *fakeGarbageCollector) Recover(_ context.Context, _ network.Key, nodes, skip []string) ([]string, error) {
	s.calls = append(s.calls, fmt.Sprintf("recover %v without %v", nodes, skip))
	return s.awaited, s.err
}

// fakeRecorder records Events.
type fakeRecorder []string

func (r *fakeRecorder) Event(of runtime.Object, kind, reason, message string) {
	text := kind + " " + reason + ": " + message
	if pod, ok := of.(*corev1.ObjectReference); ok {
		text = pod.Kind + " " + pod.Namespace + "/" + pod.Name + ": " + text
	}
	*r = append(*r, text)
}

// bench is a Controller with fakes around it.
type bench struct {
	*Controller

	cluster   *cluster
	collector *fakeGarbageCollector
	events    *fakeRecorder
	now       time.Time
}

func newBench(suspect bool) *bench {
	b := &bench{cluster: &cluster{nodes: map[string]string{"a": "1", "b": "2"}}, collector: &fakeGarbageCollector{}, events: &fakeRecorder{}, now: time.Unix(1_000_000, 0)}
	cfg := Config{
		NeedsRepair: func(*status.Object, []status.Endpoint) (bool, error) { return suspect, nil },
		Now:         func() time.Time { return b.now },
	}
	cfg.Metrics = RegisterMetrics(prometheus.NewRegistry())
	reader := &clusterReader{cached: b.cluster, direct: b.cluster, now: cfg.Now}
	b.Controller = newController(cfg, reader, b.cluster, b.collector, b.events)
	return b
}

func TestReconcileNetwork(t *testing.T) {
	t.Parallel()
	recovering := func(done ...string) func(*v1.ClusterNetwork) {
		return func(cn *v1.ClusterNetwork) { cn.Status.IPAM.Recovering = &v1.RecoveryStatus{ReportedNodes: done} }
	}
	reporting := func(until int64) func(*v1.ClusterNetwork) {
		return func(cn *v1.ClusterNetwork) {
			cn.Status.IPAM.Held = map[string]v1.HeldAddresses{"a": {UID: "1", Rollback: &v1.RollbackReport{Reason: v1.RollbackOlderResourceVersion}}}
			cn.Status.IPAM.RecoveryDeferredUntil = map[string]metav1.MicroTime{"a": metav1.NewMicroTime(time.Unix(until, 0))}
		}
	}
	annotated := func(name, value string, others ...func(*v1.ClusterNetwork)) func(*v1.ClusterNetwork) {
		return func(cn *v1.ClusterNetwork) {
			cn.Annotations = map[string]string{name: value}
			for _, f := range others {
				f(cn)
			}
		}
	}
	const marked = `"danm.io/recovering":"0001-01-01T00:00:00Z"`
	held := func(cn *v1.ClusterNetwork) {
		cn.Status.IPAM.Held = map[string]v1.HeldAddresses{"a": {UID: "1"}, "b": {UID: "old"}, "c": {UID: "3"}}
	}
	cases := map[string]struct {
		reason  string
		network func(*v1.ClusterNetwork)
		suspect bool
		found   gc.Findings
		gone    []incarnation
		err     error
		calls   []string
		writes  []string // parts of what is written, in order
		events  []string // the same for Events
		fails   bool
	}{
		"Quiet":   {reason: "Without anything due the garbage collector is not called.", network: func(*v1.ClusterNetwork) {}, writes: []string{"conditions"}},
		"Suspect": {reason: "The caches show a bit without an owner.", network: func(*v1.ClusterNetwork) {}, suspect: true, calls: []string{"audit"}, writes: []string{"conditions"}},
		"Damaged": {
			reason: "Addresses in use that were marked as free are reported.", suspect: true,
			network: func(*v1.ClusterNetwork) {}, found: gc.Findings{Drift: gc.Drift{Marked: 2}},
			calls: []string{"audit"}, writes: []string{"conditions"}, events: []string{"Warning BitmapDamaged: the bitmap was wrong: 2 addresses in use"},
		},
		"DamagedAndUnreadable": {
			reason: "The corrections of an audit that fails later count.", suspect: true,
			network: func(*v1.ClusterNetwork) {}, found: gc.Findings{Drift: gc.Drift{Marked: 2}}, err: errors.New("entry is rubbish"),
			calls: []string{"audit"}, writes: []string{"conditions"}, events: []string{"Warning BitmapDamaged: "}, fails: true,
		},
		"Conflict": {
			reason: "A conflict sets the condition and makes an Event on each Pod.", suspect: true,
			network: func(*v1.ClusterNetwork) {}, found: gc.Findings{Conflicts: []gc.Conflict{conflictOf("10.0.0.1", "ns/a", "other/b")}},
			calls: []string{"audit"}, writes: []string{"conditions"},
			events: []string{"Pod ns/a: Warning DuplicateAddress: address 10.0.0.1 of ", "Pod other/b: Warning DuplicateAddress: address 10.0.0.1 of ", "10.0.0.1: Pod ns/a on node "},
		},
		"ConflictAndUnreadable": {
			reason: "A compromised node must not hide a conflict with an unreadable entry.", suspect: true,
			network: func(*v1.ClusterNetwork) {}, found: gc.Findings{Conflicts: []gc.Conflict{conflictOf("10.0.0.1", "ns/a", "other/b")}},
			err: errors.New("entry is rubbish"), calls: []string{"audit"}, writes: []string{"conditions"}, fails: true,
			events: []string{"Pod ns/a: Warning DuplicateAddress: ", "Pod other/b: Warning DuplicateAddress: ", "10.0.0.1: Pod ns/a on node "},
		},
		"ConflictIsOver": {
			reason: "The condition is removed only after an audit.", network: withConflict,
			calls: []string{"audit"}, writes: []string{"conditions"},
		},
		"ConflictUnknown": {
			reason: "The condition stays when the audit fails.", network: withConflict, err: errors.New("away"),
			calls: []string{"audit"}, writes: []string{"conditions"}, fails: true,
		},
		"SuspectInRecovery": {
			reason:  "The owners of bits are not known yet, so nothing is freed.",
			network: recovering("a"), suspect: true, writes: []string{marked, "conditions"}, events: []string{"Warning AwaitingNodes: "},
		},
		"Rollback": {
			reason:  "A rollback report starts the recovery, and everything else waits for the next reconciliation.",
			network: reporting(0), suspect: true, calls: []string{"recover [a b] without []"},
		},
		"RollbackDeferred": {
			reason:  "A node that reports too many rollbacks does not stop the network.",
			network: reporting(2_000_000), suspect: true, calls: []string{"audit"}, writes: []string{"conditions"}, events: []string{"Warning TooManyRollbacks: "},
		},
		"Recovered": {
			reason:  "All nodes have reported.",
			network: recovering("a", "b"), calls: []string{"recover [a b] without []"}, writes: []string{"conditions"}, events: []string{"Normal Recovered: every node"},
		},
		"RecoverFails": {
			reason:  "The condition stays when the awaited nodes are unknown.",
			network: recovering("a", "b"), err: errors.New("away"), calls: []string{"recover [a b] without []"}, writes: []string{marked}, fails: true,
		},
		"Marked": {
			reason:  "The annotation is already as it should be.",
			network: annotated(v1.RecoveringAnnotation, "0001-01-01T00:00:00Z", recovering("a")), writes: []string{"conditions"}, events: []string{"AwaitingNodes"},
		},
		"MarkedOtherwise": {
			reason:  "The recovery started again, or someone changed the annotation.",
			network: annotated(v1.RecoveringAnnotation, "noon", recovering("a")), writes: []string{marked, "conditions"}, events: []string{"AwaitingNodes"},
		},
		"MarkIsOver": {
			reason: "After the recovery nodes have nothing to report.", network: annotated(v1.RecoveringAnnotation, "noon"), writes: []string{`"danm.io/recovering":null`, "conditions"},
		},
		"Skipped": {
			reason:  "A person skips a node that is powered off.",
			network: annotated(v1.SkipAnnotation, "b", recovering("a")), calls: []string{"recover [a b] without [b]"},
			writes: []string{"conditions"}, events: []string{"left out on request: b"},
		},
		"SkippedText": {
			reason:  "Tenants write the annotation: text that is no Node's name is neither used nor reported.",
			network: annotated(v1.SkipAnnotation, "c,b,all of them", recovering("a")), calls: []string{"recover [a b] without [b]"},
			writes: []string{"conditions"}, events: []string{"left out on request: b"},
		},
		"SkipIsOver": {
			reason: "The annotation must not apply to a later recovery.", network: annotated(v1.SkipAnnotation, "b"), writes: []string{`"/metadata/annotations/danm.io~1ipam-skip"`, "conditions"},
		},
		"Rebuild": {
			reason: "The rebuild is done and reported, and the request removed.", network: annotated(v1.RebuildAnnotation, "x"),
			calls: []string{"audit"}, writes: []string{`"value":"x"`, "conditions"}, events: []string{"Normal BitmapRebuilt: "},
		},
		"RebuildWaits": {
			reason:  "In a recovery the addresses in use are not known.",
			network: annotated(v1.RebuildAnnotation, "x", recovering("a")), writes: []string{marked, "conditions"}, events: []string{"AwaitingNodes"},
		},
		"RebuildFails": {
			reason: "The request stays, and is tried again.", network: annotated(v1.RebuildAnnotation, "x"), err: errors.New("entry is rubbish"),
			calls: []string{"audit"}, writes: []string{"conditions"}, events: []string{"Warning BitmapRebuildFailed: entry is rubbish"}, fails: true,
		},
		"GoneNodes": {
			reason:  "Only Nodes that were gone for the grace period and are still gone lose their addresses.",
			network: held, gone: []incarnation{{"a", "1"}, {"b", "old"}, {"c", "3"}, {"d", "4"}},
			calls: []string{"evict map[b:old c:3]"}, writes: []string{"conditions"},
		},
		"NotYetGone": {reason: "Before the grace period is over nothing is freed.", network: held, writes: []string{"conditions"}},
		"Deleting": {
			reason: "A network in deletion needs no conditions, but its addresses are audited.", suspect: true,
			network: func(cn *v1.ClusterNetwork) { cn.DeletionTimestamp = &metav1.Time{} }, calls: []string{"audit"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(tc.suspect)
			b.collector.found = tc.found
			b.collector.err = tc.err
			b.goneNodes.set(tc.gone)
			_, err := b.reconcileNetwork(t.Context(), dualStackNetwork(tc.network))
			if (err != nil) != tc.fails {
				t.Errorf("%s: got error %v, want one: %t", tc.reason, err, tc.fails)
			}
			if diff := cmp.Diff(tc.calls, b.collector.calls); diff != "" {
				t.Errorf("%s: calls of the garbage collector (-want +got):\n%s", tc.reason, diff)
			}
			for what, pair := range map[string][2][]string{"writes": {tc.writes, b.cluster.writes}, "Events": {tc.events, *b.events}} {
				if !slices.EqualFunc(pair[0], pair[1], func(part, all string) bool { return strings.Contains(all, part) }) {
					t.Errorf("%s: %s are %q, want %q", tc.reason, what, pair[1], pair[0])
				}
			}
		})
	}
}

// Everyone who may write a network may request rebuilds in a loop.
func TestRebuildsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(false)
	r := dualStackNetwork(func(cn *v1.ClusterNetwork) { cn.Annotations = map[string]string{v1.RebuildAnnotation: "x"} })
	for range 3 {
		if again, err := b.rebuildOnRequest(t.Context(), r); err != nil || len(b.collector.calls) > 1 {
			t.Fatalf("%d rebuilds at once, again in %s, %v", len(b.collector.calls), again, err)
		}
		b.audit.pruneRebuilds()
	}
	b.now = b.now.Add(minRebuildInterval)
	b.audit.pruneRebuilds()
	if _, err := b.rebuildOnRequest(t.Context(), r); err != nil || len(b.collector.calls) != 2 {
		t.Errorf("%d rebuilds after a while, %v, want 2", len(b.collector.calls), err)
	}
}

// A busy network changes its numbers all the time, and the more nodes use it, the more a write costs.
func TestPoolsOfLargeNetworksWaitLonger(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		nodes  int
		want   time.Duration
	}{
		"Unused": {reason: "No node claims addresses meanwhile.", nodes: 0, want: 10 * time.Second},
		"Small":  {reason: "The numbers stay fresh.", nodes: 5, want: 10*time.Second + 100*time.Millisecond},
		"Large":  {reason: "Each write may make a claim of each node conflict.", nodes: 1000, want: 30 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(false)
			quiet := dualStackNetwork(func(*v1.ClusterNetwork) {})
			pools, err := b.Controller.cluster.countPools(t.Context(), quiet)
			if err != nil {
				t.Fatal(err)
			}
			r := dualStackNetwork(func(cn *v1.ClusterNetwork) {
				cn.Status.ObservedGeneration = cn.Generation
				cn.Status.Conditions = desiredConditions(nil, cn.Generation, pools, newGrowthAdvice(quiet.Object), recoveryProgress{}, conflictFindings{})
				cn.Status.Pools = slices.Clone(pools)
				cn.Status.Pools[0].InUse++ // out of date
				cn.Status.IPAM.Held = map[string]v1.HeldAddresses{}
				for i := range tc.nodes {
					cn.Status.IPAM.Held[fmt.Sprint("n", i)] = v1.HeldAddresses{UID: "u", Seq: 1}
				}
			})
			got, err := b.updateStatus(t.Context(), r, recoveryProgress{}, conflictFindings{})
			if err != nil || got != tc.want || len(b.cluster.writes) > 0 {
				t.Errorf("%s: numbers of %d nodes are written after %s, %v, now %q, want after %s", tc.reason, tc.nodes, got, err, b.cluster.writes, tc.want)
			}
			b.now = b.now.Add(tc.want)
			if got, err = b.updateStatus(t.Context(), r, recoveryProgress{}, conflictFindings{}); err != nil || got != 0 || len(b.cluster.writes) != 1 {
				t.Errorf("%s: after the interval: wait %s, %v, written %q, want one write", tc.reason, got, err, b.cluster.writes)
			}
		})
	}
}

// delayedQueue records what is queued with a delay.
type delayedQueue struct {
	workqueue.TypedRateLimitingInterface[network.Ref]
	refs []network.Ref
}

func (q *delayedQueue) AddAfter(ref network.Ref, _ time.Duration) { q.refs = append(q.refs, ref) }

// Tenants write DanmEps that name any network, and each name must not stay in memory.
func TestDanmEpsOfMissingNetworks(t *testing.T) {
	t.Parallel()
	known := network.Ref{Kind: v1.KindClusterNetwork, Name: "a"}
	cases := map[string]struct {
		reason string
		names  string
		want   []network.Ref
	}{
		"Exists":  {reason: "The numbers of the network change.", names: known.Name, want: []network.Ref{known}},
		"Missing": {reason: "There is no such network.", names: "missing"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, q := newBench(false), &delayedQueue{}
			ep := &v1.DanmEp{Spec: v1.DanmEpSpec{APIType: v1.KindClusterNetwork, NetworkName: tc.names}}
			b.danmEpHandler().Create(t.Context(), event.TypedCreateEvent[*v1.DanmEp]{Object: ep}, q)
			b.danmEpHandler().Delete(t.Context(), event.TypedDeleteEvent[*v1.DanmEp]{Object: ep}, q)
			if want := slices.Concat(tc.want, tc.want); !slices.Equal(want, q.refs) {
				t.Errorf("%s: a DanmEp that came and went queues %v, want %v", tc.reason, q.refs, want)
			}
		})
	}
}

// A network that was queued before its deletion is reconciled after it.
func TestMissingNetworkIsForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(false)
	if _, err := b.Reconcile(t.Context(), network.Ref{Kind: v1.KindClusterNetwork, Name: "missing"}); err != nil {
		t.Error(err)
	}
	b.lastReconciled.Range(func(ref, _ any) bool {
		t.Errorf("the controller remembers %v, which does not exist", ref)
		return true
	})
}
