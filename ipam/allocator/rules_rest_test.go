// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"

	"github.com/patchbay-cni/patchbay/ipam/allocator"
)

// Who finds a pool exhausted gets what others hold: at their first look, while its
// caller waits.
func TestPressureGivesBack(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, _ := w.Scripted()
		n1, n2 := w.WarmNode(slow(store), "n1", allocator.Config{}), w.WarmNode(slow(store), "n2", allocator.Config{})
		burst := func(a *allocator.Allocator, n int) {
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() { w.Claim(a, testbed.Dynamic(), testbed.None()) })
			}
			wg.Wait()
		}
		burst(n1, 20)
		if held := n1.Stats().Warm; held < 20 {
			w.Fatalf("only %d held: nothing is tested", held)
		}
		defer w.Watch(n1, time.Second)()
		time.Sleep(10 * time.Second)
		start := time.Now()
		burst(n2, 254-20)
		if took := time.Since(start); took > 6*time.Second {
			w.Errorf("served after %v: more than one look of the holder", took)
		}
		if w.IPAM().ReclaimRequestTime == nil || n1.Stats().Warm != 0 {
			w.Errorf("pressure %v, n1 holds %d", w.IPAM().ReclaimRequestTime, n1.Stats().Warm)
		}
	})
}

// A holder reads the object at most every 5 s, however often that is written.
func TestHolderLooksNotTooOften(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		store, s := w.Scripted()
		a := w.WarmNode(store, "n1", allocator.Config{})
		w.Claim(a, testbed.Dynamic(), testbed.None())
		before := len(s.Called())
		stop := w.Watch(a, 100*time.Millisecond)
		time.Sleep(time.Minute)
		stop()
		gets := strings.Count(strings.Join(s.Called()[before:], " "), "Get")
		if gets < 11 || gets > 13 {
			w.Errorf("%d reads in a minute of changes, want one every 5 s", gets)
		}
	})
}

// A released address rests, covered by the entry of its node, and is ready or free
// after that.
func TestReleasedAddressRests(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := w.WarmNode(w.Store, "n1", allocator.Config{WarmPoolSize: -1})
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Publish(a, "n1", a4, testbed.NoAddr())
		w.Idle()
		w.Release(a, "n1", a4, testbed.NoAddr())
		time.Sleep(9 * time.Second)
		if got := w.Entry("n1"); got != a4.String()+" " || a.Stats().Cooling != 1 {
			w.Errorf("entry %q, %d resting after 9 s", got, a.Stats().Cooling)
		}
		time.Sleep(2 * time.Second)
		if w.Bits() != nil || w.Entry("n1") != "-" {
			w.Errorf("bits %v, entry %q after 11 s", w.Bits(), w.Entry("n1"))
		}
	})
}

// A hold does not hand out what rests.
func TestHoldWaitsForTheRest(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := w.WarmNode(w.Store, "n1", allocator.Config{})
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Release(a, "n1", a4, testbed.NoAddr())
		for range 30 {
			if got, _ := w.Claim(a, testbed.Dynamic(), testbed.None()); got == a4 {
				w.Fatalf("%v was handed out while it rests", a4)
			}
			time.Sleep(300 * time.Millisecond)
		}
	})
}

// A pool of as many addresses as Pods has no time to rest.
func TestRestIsCutShort(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/30", ""), func(w *testbed.World) {
		a := w.WarmNode(w.Store, "n1", allocator.Config{})
		w.Claim(a, testbed.Dynamic(), testbed.None())
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Release(a, "n1", a4, testbed.NoAddr())
		if a.Stats().Cooling != 1 {
			w.Fatalf("%+v: nothing is tested", a.Stats())
		}
		if got, _ := w.Claim(a, testbed.Dynamic(), testbed.None()); got != a4 {
			w.Errorf("got %v, want %v: nothing else is free", got, a4)
		}
	})
}

// A static address is free as soon as Free returns, also when it was claimed by a
// former life.
func TestStaticIsFreedAtOnce(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", "fd00::/64"), func(w *testbed.World) {
		a := w.WarmNode(w.Store, "n1", allocator.Config{})
		first4, first6 := w.Claim(a, testbed.Static("10.0.0.50"), testbed.Static("fd00::50"))
		next4, next6 := w.Claim(a, testbed.Static("10.0.0.51"), testbed.Static("fd00::51"))
		w.Release(a, "n1", first4, first6)
		if got := w.Bits(); slices.Contains(got, first4.String()) || slices.Contains(got, first6.String()) {
			w.Errorf("bits %v after the release of %v and %v", got, first4, first6)
		}
		a.Close()
		a = w.WarmNode(w.Store, "n1", allocator.Config{})
		a.Resume([]allocator.Use{{Key: w.Key(), V4: next4, V6: next6, Static4: true, Static6: true}}, nil)
		w.Release(a, "n1", next4, next6)
		if got := w.Bits(); slices.Contains(got, next4.String()) || slices.Contains(got, next6.String()) {
			w.Errorf("bits %v after the release of %v and %v, which a former life claimed", got, next4, next6)
		}
	})
}

// Next-fit goes on where the former life ended.
func TestNextFitAcrossRestarts(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		for i, want := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
			a := w.Node("n1")
			a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
			if a4 != testbed.Addr(want) {
				w.Errorf("life %d got %v, want %s: the others were freed just now", i, a4, want)
			}
			w.Release(a, "n1", a4, testbed.NoAddr())
			a.Close()
		}
	})
}

// A hold of the former subnet does not keep the subnet from changing, and serves
// nobody who knows the new one.
func TestSubnetChangeClosesTheHold(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := w.WarmNode(w.Store, "n1", allocator.Config{Cooldown: -1})
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Release(a, "n1", a4, testbed.NoAddr())
		synctest.Wait()
		if a.Stats().Warm == 0 {
			w.Fatal("nothing is held: nothing is tested")
		}
		w.Net = w.Store.Create(testbed.ClusterNetwork("10.9.0.0/24", ""))
		if a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None()); a4 != testbed.Addr("10.9.0.1") {
			w.Errorf("got %v, want the first of the new subnet", a4)
		}
		if strings.Contains(w.Entry("n1"), "10.0.0.") {
			w.Errorf("entry %q has the former subnet", w.Entry("n1"))
		}
	})
}
