// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Who finds a pool exhausted gets what others hold: at their first look, while its
// caller waits.
func TestPressureGivesBack(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, _ := w.scripted()
		n1, n2 := w.holder(slow(store), "n1", claims.Config{}), w.holder(slow(store), "n2", claims.Config{})
		burst := func(a *claims.Allocator, n int) {
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() { w.claim(a, dynamic, none) })
			}
			wg.Wait()
		}
		burst(n1, 20)
		if held := n1.Stats().Held; held < 20 {
			w.Fatalf("only %d held: nothing is tested", held)
		}
		defer w.watched(n1, time.Second)()
		time.Sleep(10 * time.Second)
		start := time.Now()
		burst(n2, 254-20)
		if took := time.Since(start); took > 6*time.Second {
			w.Errorf("served after %v: more than one look of the holder", took)
		}
		if w.ipam().ReclaimRequestTime == nil || n1.Stats().Held != 0 {
			w.Errorf("pressure %v, n1 holds %d", w.ipam().ReclaimRequestTime, n1.Stats().Held)
		}
	})
}

// A holder reads the object at most every 5 s, however often that is written.
func TestHolderLooksNotTooOften(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		store, s := w.scripted()
		a := w.holder(store, "n1", claims.Config{})
		w.claim(a, dynamic, none)
		before := len(s.called())
		stop := w.watched(a, 100*time.Millisecond)
		time.Sleep(time.Minute)
		stop()
		gets := strings.Count(strings.Join(s.called()[before:], " "), "Get")
		if gets < 11 || gets > 13 {
			w.Errorf("%d reads in a minute of changes, want one every 5 s", gets)
		}
	})
}

// A released address rests, covered by the entry of its node, and is ready or free
// after that.
func TestReleasedAddressRests(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := w.holder(w.store, "n1", claims.Config{Hold: -1})
		a4, _ := w.claim(a, dynamic, none)
		w.publish(a, "n1", a4, no)
		w.idle()
		w.release(a, "n1", a4, no)
		time.Sleep(9 * time.Second)
		if got := w.entry("n1"); got != a4.String()+" " || a.Stats().Cooling != 1 {
			w.Errorf("entry %q, %d resting after 9 s", got, a.Stats().Cooling)
		}
		time.Sleep(2 * time.Second)
		if w.bits() != nil || w.entry("n1") != "-" {
			w.Errorf("bits %v, entry %q after 11 s", w.bits(), w.entry("n1"))
		}
	})
}

// A hold does not hand out what rests.
func TestHoldWaitsForTheRest(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := w.holder(w.store, "n1", claims.Config{})
		a4, _ := w.claim(a, dynamic, none)
		w.release(a, "n1", a4, no)
		for range 30 {
			if got, _ := w.claim(a, dynamic, none); got == a4 {
				w.Fatalf("%v was handed out while it rests", a4)
			}
			time.Sleep(300 * time.Millisecond)
		}
	})
}

// A pool of as many addresses as Pods has no time to rest.
func TestRestIsCutShort(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/30", ""), func(w *world) {
		a := w.holder(w.store, "n1", claims.Config{})
		w.claim(a, dynamic, none)
		a4, _ := w.claim(a, dynamic, none)
		w.release(a, "n1", a4, no)
		if a.Stats().Cooling != 1 {
			w.Fatalf("%+v: nothing is tested", a.Stats())
		}
		if got, _ := w.claim(a, dynamic, none); got != a4 {
			w.Errorf("got %v, want %v: nothing else is free", got, a4)
		}
	})
}

// A static address is free as soon as Free returns, also when it was claimed by a
// former life.
func TestStaticIsFreedAtOnce(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", "fd00::/64"), func(w *world) {
		a := w.holder(w.store, "n1", claims.Config{})
		first4, first6 := w.claim(a, static("10.0.0.50"), static("fd00::50"))
		next4, next6 := w.claim(a, static("10.0.0.51"), static("fd00::51"))
		w.release(a, "n1", first4, first6)
		if got := w.bits(); slices.Contains(got, first4.String()) || slices.Contains(got, first6.String()) {
			w.Errorf("bits %v after the release of %v and %v", got, first4, first6)
		}
		a.Close()
		a = w.holder(w.store, "n1", claims.Config{})
		a.Resume([]claims.Use{{Key: w.key(), V4: next4, V6: next6, Static4: true, Static6: true}}, nil)
		w.release(a, "n1", next4, next6)
		if got := w.bits(); slices.Contains(got, next4.String()) || slices.Contains(got, next6.String()) {
			w.Errorf("bits %v after the release of %v and %v, which a former life claimed", got, next4, next6)
		}
	})
}

// Next-fit goes on where the former life ended.
func TestNextFitAcrossRestarts(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		for i, want := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
			a := w.node("n1")
			a4, _ := w.claim(a, dynamic, none)
			if a4 != addr(want) {
				w.Errorf("life %d got %v, want %s: the others were freed just now", i, a4, want)
			}
			w.release(a, "n1", a4, no)
			a.Close()
		}
	})
}

// A hold of the former subnet does not keep the subnet from changing, and serves
// nobody who knows the new one.
func TestSubnetChangeClosesTheHold(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := w.holder(w.store, "n1", claims.Config{Cool: -1})
		a4, _ := w.claim(a, dynamic, none)
		w.release(a, "n1", a4, no)
		synctest.Wait()
		if a.Stats().Held == 0 {
			w.Fatal("nothing is held: nothing is tested")
		}
		w.net = w.store.Create(clusterNetwork("10.9.0.0/24", ""))
		if a4, _ := w.claim(a, dynamic, none); a4 != addr("10.9.0.1") {
			w.Errorf("got %v, want the first of the new subnet", a4)
		}
		if strings.Contains(w.entry("n1"), "10.0.0.") {
			w.Errorf("entry %q has the former subnet", w.entry("n1"))
		}
	})
}
