// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// world is a fake API server for networks, and a fake event recorder.
type world struct {
	mu     sync.Mutex
	nets   map[network.Ref]*Snapshot
	writes []metav1.Condition
	reads  int
	// retracted counts the writes that removed the condition.
	retracted int
	nodes     []v1.NodeNetwork
	events    []string
	err       error
	// writing runs before each write, outside of the lock.
	writing func()
}

func (w *world) Nodes(context.Context) ([]v1.NodeNetwork, error) { return w.nodes, nil }

func (w *world) Version(_ context.Context, ref network.Ref) (Version, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nets[ref]
	if n == nil {
		return Version{}, false, nil
	}
	return Version{n.UID, n.Generation, fmt.Sprint(n.Generation)}, true, nil
}

func (w *world) Read(_ context.Context, ref network.Ref, notOlder string) (Snapshot, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if n := w.nets[ref]; n != nil {
		if notOlder != fmt.Sprint(n.Generation) {
			return Snapshot{}, false, fmt.Errorf("asked for an object of %q, which may be older than the watch's", notOlder)
		}
		return *n, true, nil
	}
	return Snapshot{}, false, nil
}

func (w *world) Write(_ context.Context, ref network.Ref, uid types.UID, c *metav1.Condition) error {
	if w.writing != nil {
		w.writing()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if n := w.nets[ref]; n != nil && n.UID == uid {
		n.Ready = c
		if c == nil {
			w.retracted++
			return nil
		}
		w.writes = append(w.writes, *c)
	}
	return nil
}

func (w *world) Event(_ runtime.Object, kind, reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, kind+" "+reason+" "+message)
}

// bench runs a controller's queue with one worker, in the time of a synctest bubble.
type bench struct {
	*world
	c     *Controller
	queue queue
	watch handler.TypedEventHandler[*v1.NodeNetwork, network.Ref]
}

func newBench(ctx context.Context) *bench {
	w := &world{nets: map[network.Ref]*Snapshot{}}
	b := &bench{world: w, c: newController(Config{Metrics: RegisterMetrics(prometheus.NewRegistry()), Events: w}, w)}
	b.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[network.Ref]())
	b.watch = b.c.nodeNetworkHandler()
	go func() { <-ctx.Done(); b.queue.ShutDown() }()
	go func() {
		for {
			ref, stop := b.queue.Get()
			if stop {
				return
			}
			switch result, err := b.c.Reconcile(ctx, ref); {
			case err != nil:
				b.queue.AddRateLimited(ref)
			case result.RequeueAfter > 0:
				b.queue.Forget(ref)
				b.queue.AddAfter(ref, result.RequeueAfter)
			default:
				b.queue.Forget(ref)
			}
			b.queue.Done(ref)
		}
	}()
	return b
}

// network creates or changes a network.
func (b *bench) network(ref network.Ref, uid string, generation int64) {
	now := &Snapshot{UID: types.UID(uid), Generation: generation, Needs: needs{Link: true}}
	b.mu.Lock()
	if old := b.nets[ref]; old != nil && old.UID == now.UID {
		now.Ready = old.Ready
	}
	b.nets[ref] = now
	b.mu.Unlock()
	b.queue.Add(ref)
}

// written returns the number of writes.
func (b *bench) written() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.writes)
}

// gone deletes a network.
func (b *bench) gone(ref network.Ref) {
	b.mu.Lock()
	delete(b.nets, ref)
	b.mu.Unlock()
	b.queue.Add(ref)
}

// fails makes writes fail from now on.
func (b *bench) fails(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *bench) report(ctx context.Context, nn *v1.NodeNetwork) {
	b.watch.Update(ctx, event.TypedUpdateEvent[*v1.NodeNetwork]{ObjectNew: nn}, b.queue)
}

// in runs f in a synctest bubble with a bench.
func in(t *testing.T, f func(ctx context.Context, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f(ctx, newBench(ctx))
	})
}

var storageRef = network.Ref{Kind: "ClusterNetwork", Name: "storage"}

func (b *bench) condition() string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.nets[storageRef].Ready; c != nil {
		return string(c.Status) + " " + c.Message
	}
	return ""
}

// The steps show what users of one network see, and how often it is written.
func TestOneNetwork(t *testing.T) {
	t.Parallel()
	in(t, func(ctx context.Context, b *bench) {
		good := func(node string) *v1.NodeNetwork { return nodeNetwork(node, []string{storage}, nil) }
		bad := func(node string) *v1.NodeNetwork { return nodeNetwork(node, nil, map[string]string{storage: "no NIC"}) }
		const up, down = "True ready on all nodes", "False ready on 1 of 2 nodes; b: no NIC"
		b.report(ctx, nodeNetwork("a", nil, nil))
		b.report(ctx, nodeNetwork("b", nil, nil))
		b.network(storageRef, "u1", 1)
		for _, step := range []struct {
			reason string
			do     func()
			after  time.Duration
			want   string
			writes int
		}{
			{"The nodes have not made its link yet.", func() {}, time.Second, "", 0},
			{"One of two nodes has the link.", func() { b.report(ctx, good("a")) }, time.Second, "", 0},
			{"Both nodes have it, and a user may be waiting.", func() { b.report(ctx, good("b")) }, 0, up, 1},
			{"A node repeats its report.", func() { b.report(ctx, good("b")) }, time.Hour, up, 1},
			{"A NIC loses its carrier for a second.", func() { b.report(ctx, bad("b")) }, time.Second, up, 1},
			{"The carrier is back.", func() { b.report(ctx, good("b")) }, time.Minute, up, 1},
			{"The carrier is lost again.", func() { b.report(ctx, bad("b")) }, 9 * time.Second, up, 1},
			{"It stays lost.", func() {}, 2 * time.Second, down, 2},
			{"It is back, but the condition was written a moment ago.", func() { b.report(ctx, good("b")) }, 0, down, 2},
			{"MinWriteInterval has passed.", func() {}, 10 * time.Second, up, 3},
			{"A node joins that has the link at once.", func() { b.report(ctx, good("c")) }, time.Minute, up, 3},
			{"A node leaves.", func() {
				b.watch.Delete(ctx, event.TypedDeleteEvent[*v1.NodeNetwork]{Object: good("c")}, b.queue)
			}, time.Minute, up, 3},
			{"The spec changes, and the reports may be about the old one.", func() { b.network(storageRef, "u1", 2) }, 5 * time.Second, up, 3},
			{"The reports stay the same.", func() {}, 6 * time.Second, up, 4},
			{"The network is deleted and created again.", func() { b.network(storageRef, "u2", 1) }, 11 * time.Second, up, 5},
			{"The queue sees the deletion before the next one.", func() { b.gone(storageRef); b.network(storageRef, "u3", 1) }, 11 * time.Second, up, 6},
		} {
			step.do()
			time.Sleep(step.after)
			if got, n := b.condition(), b.written(); got != step.want || n != step.writes {
				t.Errorf("%s: %d writes, %q; want %d, %q", step.reason, n, got, step.writes, step.want)
			}
		}
		if c := b.nets[storageRef].Ready; c.ObservedGeneration != 1 || c.LastTransitionTime.IsZero() {
			t.Errorf("condition %+v", c)
		}
		want := []string{"Warning LinksNotUp ready on 1 of 2 nodes; b: no NIC", "Normal LinksUp ready on all nodes"}
		if fmt.Sprint(b.events) != fmt.Sprint(want) {
			t.Errorf("Events %q, want those of changes: %q", b.events, want)
		}
	})
}

// A plugin that is installed, removed, or replaced by another configuration, changes the networks that
// need it and no others. The report names no network.
func TestDelegatesOfManyNetworks(t *testing.T) {
	t.Parallel()
	in(t, func(ctx context.Context, b *bench) {
		report := func(fault string) {
			nn := &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			nn.Status.Delegates = []v1.DelegateReport{{NetworkType: "flannel", NetworkID: "f"}, {NetworkType: "ipvlam", NetworkID: "x", Error: fault}}
			b.report(ctx, nn)
		}
		ref := func(name string) network.Ref { return network.Ref{Kind: "ClusterNetwork", Name: name} }
		for name, needed := range map[string]delegate{"typo1": {"ipvlam", "x"}, "typo2": {"ipvlam", "x"}, "other": {"flannel", "f"}} {
			b.nets[ref(name)] = &Snapshot{UID: "u", Generation: 1, Needs: needs{Delegate: needed}}
		}
		report("no ipvlam")
		for name := range b.nets {
			b.queue.Add(name)
		}
		expect := func(when, want string, writes int) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, name := range []string{"typo1", "typo2"} {
				if got := b.nets[ref(name)].Ready.Message; got != want {
					t.Errorf("%s: %s is %q, want %q", when, name, got, want)
				}
			}
			if got := b.nets[ref("other")].Ready.Message; got != "ready on all nodes" || b.written() != writes {
				t.Errorf("%s: the other network is %q after %d writes, want it ready, after %d", when, got, b.written(), writes)
			}
		}
		expect("at the start", "ready on 0 of 1 nodes; a: no ipvlam", 3)
		report("")
		expect("with the plugin", "ready on all nodes", 5)
		report("no configuration")
		expect("without its configuration", "ready on 0 of 1 nodes; a: no configuration", 7)
	})
}

// A node that joins while the first condition of a network is written counts.
func TestNodeJoinsDuringFirstWrite(t *testing.T) {
	t.Parallel()
	in(t, func(ctx context.Context, b *bench) {
		b.report(ctx, nodeNetwork("a", []string{storage}, nil))
		b.writing = sync.OnceFunc(func() { b.report(ctx, nodeNetwork("b", nil, nil)) })
		b.network(storageRef, "u1", 1)
		time.Sleep(time.Minute)
		if got, want := b.condition(), "False ready on 1 of 2 nodes; b: the node has not reported on this network yet"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A controller that starts and finds right conditions writes none.
func TestRestart(t *testing.T) {
	t.Parallel()
	in(t, func(ctx context.Context, b *bench) {
		one, two := nodeNetwork("a", []string{storage}, nil), nodeNetwork("b", nil, map[string]string{storage: "no NIC"})
		b.report(ctx, one)
		b.report(ctx, two)
		b.network(storageRef, "u1", 1)
		time.Sleep(time.Minute)
		if got := b.condition(); got != "False ready on 1 of 2 nodes; b: no NIC" {
			t.Fatalf("got %q", got)
		}
		other := newBench(ctx)
		other.nets, other.nodes = b.nets, []v1.NodeNetwork{*one, *two}
		other.queue.Add(storageRef)
		synctest.Wait() // before the first event
		other.report(ctx, one)
		synctest.Wait()
		other.report(ctx, two)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := other.written(); n > 0 || other.reads != 1 {
			t.Errorf("%d writes and %d reads, want 0 and 1", n, other.reads)
		}
	})
}

// The controller leaves networks without a link alone, and retries a failed write.
func TestOthersAndFailures(t *testing.T) {
	t.Parallel()
	in(t, func(ctx context.Context, b *bench) {
		b.report(ctx, nodeNetwork("a", []string{storage}, nil))
		b.mu.Lock()
		b.nets[storageRef] = &Snapshot{UID: "u", Generation: 1}
		b.mu.Unlock()
		b.queue.Add(storageRef)
		if got := b.condition(); got != "" {
			t.Errorf("a network without a link, or an invalid one, got the condition %q", got)
		}
		b.fails(errors.New("away"))
		b.network(storageRef, "u", 2)
		time.Sleep(time.Minute)
		b.fails(nil)
		time.Sleep(time.Hour)
		if got := b.condition(); got != "True ready on all nodes" {
			t.Errorf("after a failed write: %q", got)
		}
	})
}

// A network that has no link any more loses our condition, and keeps those of other owners.
func TestConditionIsRemoved(t *testing.T) {
	t.Parallel()
	in(t, func(ctx context.Context, b *bench) {
		b.report(ctx, nodeNetwork("a", []string{storage}, nil))
		b.network(storageRef, "u", 1)
		if got := b.condition(); got != "True ready on all nodes" {
			t.Fatalf("got %q", got)
		}
		unlink := func(generation int64, ready *metav1.Condition) {
			b.mu.Lock()
			b.nets[storageRef] = &Snapshot{UID: "u", Generation: generation, Ready: ready}
			b.mu.Unlock()
			b.queue.Add(storageRef)
		}
		b.fails(errors.New("away"))
		unlink(2, b.nets[storageRef].Ready)
		time.Sleep(time.Minute)
		b.fails(nil)
		time.Sleep(time.Hour)
		if got := b.condition(); got != "" || b.retracted != 1 {
			t.Errorf("a network without a link has the condition %q after %d removals, want none after 1", got, b.retracted)
		}
		b.queue.Add(storageRef)
		unlink(3, &metav1.Condition{Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Invalid", Message: "vlan 5000"})
		time.Sleep(time.Minute)
		if got := b.condition(); got != "False vlan 5000" || b.retracted != 1 {
			t.Errorf("the condition that nodes set on an invalid network became %q", got)
		}
		b.network(storageRef, "u", 4)
		time.Sleep(time.Minute)
		if got := b.condition(); got != "True ready on all nodes" {
			t.Errorf("with a link again: %q", got)
		}
	})
}

// A thousand networks are applied in half a minute on fifty nodes, while each node reports about
// every ten seconds: that takes about one write per network, and none afterwards. A lost NIC of one
// node costs one write for each network on it.
func TestManyNetworksOnManyNodes(t *testing.T) {
	t.Parallel()
	in(t, func(ctx context.Context, b *bench) {
		const networks, nodes = 1000, 50
		random := rand.New(rand.NewPCG(1, 2))
		ref := func(i int) network.Ref { return network.Ref{Kind: "ClusterNetwork", Name: fmt.Sprint("n", i)} }
		var up []string
		due := make([]time.Time, nodes)
		for i := range networks {
			up = append(up, ref(i).String())
			b.network(ref(i), "u", 1)
			time.Sleep(30 * time.Millisecond)
			for node := range due {
				if now := time.Now(); now.After(due[node]) {
					b.report(ctx, nodeNetwork(fmt.Sprint("node-", node), up, nil))
					due[node] = now.Add(8*time.Second + time.Duration(random.IntN(4000))*time.Millisecond)
				}
			}
		}
		time.Sleep(12 * time.Second)
		for node := range nodes {
			b.report(ctx, nodeNetwork(fmt.Sprint("node-", node), up, nil))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		first := b.written()
		if first > 3*networks {
			t.Errorf("%d writes for %d networks on %d nodes", first, networks, nodes)
		}
		for _, n := range b.nets {
			if n.Ready == nil || n.Ready.Status != metav1.ConditionTrue {
				t.Fatalf("a network is not ready: %+v", n.Ready)
			}
		}
		t.Logf("%d writes until %d networks were ready on %d nodes", first, networks, nodes)
		wrong := map[string]string{}
		for _, n := range up[:100] {
			wrong[n] = "ens4: NIC not found on this node"
		}
		b.report(ctx, nodeNetwork("node-7", up[100:], wrong))
		for node := nodes; node < nodes+10; node++ { // and ten nodes join
			b.report(ctx, nodeNetwork(fmt.Sprint("node-", node), up, nil))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if more := b.written() - first; more != len(wrong) {
			t.Errorf("%d writes after a NIC with %d networks went and nodes joined", more, len(wrong))
		}
	})
}
