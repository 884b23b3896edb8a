// SPDX-License-Identifier: Apache-2.0

package danmep

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// unpublished returns the record of a Pod whose interface has no DanmEp yet.
func unpublished(pod string, state attach.State) *attach.Record {
	return &attach.Record{
		ContainerID: pod, IfName: "eth0", PodNamespace: "shop", PodName: pod, State: state,
		Interfaces: []attach.Interface{{Name: "eth0", EndpointName: pod, Network: network.Network{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "a"}}}},
	}
}

func TestRecordLacksDanmEp(t *testing.T) {
	t.Parallel()
	published := unpublished("web", attach.Attached)
	published.Interfaces[0].EndpointUID = "1"
	half := unpublished("web", attach.Attached)
	half.Interfaces = append(half.Interfaces, published.Interfaces...)
	onNode := unpublished("web", attach.Attached)
	onNode.Interfaces[0].Network = network.Network{Ref: network.Ref{Kind: network.KindNodeConfiguration}}
	for name, tc := range map[string]struct {
		reason string
		rec    *attach.Record
		want   bool
	}{
		"Attached":      {"No object of the cluster has the interface.", unpublished("web", attach.Attached), true},
		"Detaching":     {"The interface may still exist.", unpublished("web", attach.Detaching), true},
		"OneOfTwo":      {"One interface is enough.", half, true},
		"Published":     {"Its DanmEp exists.", published, false},
		"Attaching":     {"The Pod has not started.", unpublished("web", attach.Attaching), false},
		"Released":      {"The interface is gone.", unpublished("web", attach.Released), false},
		"Configuration": {"A CNI configuration of the node has no DanmEp.", onNode, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := recordLacksDanmEp(tc.rec); got != tc.want {
				t.Errorf("%s got %t", tc.reason, got)
			}
		})
	}
}

// reports counts the writes of a Reporter, and has the message that it wrote last.
type reports struct {
	mu      sync.Mutex
	count   int
	message string
	err     error
	// records are those of the journal.
	records []*attach.Record
}

func (r *reports) read() ([]*attach.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records, nil
}

// change changes what the Reporter finds.
func (r *reports) change(err error, records ...*attach.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.records = err, records
}

// written returns the number of writes, and the last message.
func (r *reports) written() (int, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count, r.message
}

func (r *reports) write(_ context.Context, c *metav1.Condition) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	r.message = ""
	if c != nil {
		r.message = c.Reason + ": " + c.Message
	}
	return r.err
}

// Only a sandbox that stays without a DanmEp causes a write, and its DanmEp removes the condition.
func TestReporter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		journal := &reports{}
		r := &Reporter{
			Records: journal.read,
			Failure: func(key attach.RecordKey) error {
				if key.ContainerID == "web" {
					return errors.New("create DanmEp shop/web: exceeded quota")
				}
				return nil
			},
			Report: journal.write,
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = r.Run(ctx) }()
		defer synctest.Wait()
		defer cancel()
		wait := func(d time.Duration, why, message string, count int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got, last := journal.written(); last != message || count >= 0 && got != count {
				t.Errorf("%s: got %d reports, the last one %q, want %d and %q", why, got, last, count, message)
			}
		}
		wait(reportDelay/2, "a condition of an earlier daemon stays until this one knows better", "", 0)
		wait(reportDelay, "then it is removed", "", 1)
		wait(time.Hour, "a node without such Pods sends nothing", "", 1)
		for range 20 {
			journal.change(nil, unpublished(time.Now().String(), attach.Attached))
			wait(reportDelay/2, "Pods that come and go cause no write", "", 1)
		}
		second := unpublished("db", attach.Attached)
		second.IfName = "eth1"
		journal.change(nil, unpublished("web", attach.Attached), unpublished("db", attach.Attached), second)
		wait(2*reportDelay, "Pods without a DanmEp are named", v1.ReasonDanmEpNotCreated+": 2 Pods are attached and have no DanmEp: shop/db, shop/web (create DanmEp shop/web: exceeded quota)", -1)
		journal.change(errors.New("connection refused"))
		wait(reportDelay, "an error", "", -1)
		journal.change(nil)
		wait(reportInterval, "the report is repeated after an error", "", -1)
		before, _ := journal.written()
		wait(time.Hour, "a node whose Pods have their DanmEps sends nothing", "", before)
	})
}

// After a restart with a Pod without a DanmEp, the condition of the earlier daemon does not vanish: an uninstallation
// would go on under the Pod. The first check is a moment later than the start.
func TestReporterAfterRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		written := &reports{}
		r := &Reporter{
			Records: func() ([]*attach.Record, error) {
				return []*attach.Record{unpublished("web", attach.Attached)}, nil
			},
			Failure: func(attach.RecordKey) error { return nil },
			Report:  written.write,
			began:   time.Now(),
		}
		const skew = time.Millisecond
		check := func(after time.Duration) {
			time.Sleep(after)
			if err := r.check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		check(skew)
		check(reportDelay - skew)
		if written.count != 0 {
			t.Errorf("the condition was removed, or written as %q, before the Pod was without a DanmEp for long", written.message)
		}
		check(reportInterval)
		if !strings.Contains(written.message, "shop/web") || written.count != 1 {
			t.Errorf("got %d reports, the last one %q, want one with the Pod", written.count, written.message)
		}
	})
}

// Errors that alternate while nothing changes do not cause a write every time: the writes of all nodes go to all nodes.
func TestReporterKeepsItsText(t *testing.T) {
	t.Parallel()
	records := []*attach.Record{unpublished("web", attach.Attached)}
	attempts := 0
	r := &Reporter{
		Records: func() ([]*attach.Record, error) { return records, nil },
		Failure: func(attach.RecordKey) error { attempts++; return fmt.Errorf("exceeded quota, used: %d", attempts) },
	}
	now := time.Now()
	r.condition(now)
	after := func(d time.Duration) string {
		now = now.Add(d)
		if c := r.condition(now); c != nil {
			return c.Message
		}
		return ""
	}
	first := after(reportDelay)
	if again := after(reportInterval); first == "" || again != first {
		t.Errorf("with the same Pods, got %q after %q", again, first)
	}
	if later := after(textInterval); later == first {
		t.Errorf("after a minute, the report still has an earlier error: %q", later)
	}
	records = append(records, unpublished("db", attach.Attached))
	after(reportInterval)
	if more := after(reportDelay - reportInterval); more == "" || strings.Contains(more, "shop/db") {
		t.Errorf("got %q, and shop/db is not without a DanmEp for long", more)
	}
	if more := after(reportInterval); !strings.Contains(more, "2 Pods") || !strings.Contains(more, "shop/db") {
		t.Errorf("got %q, want the other Pod in it at once", more)
	}
	records = nil
	if none := after(reportInterval); none != "" {
		t.Errorf("got %q, want nothing", none)
	}
}

// A message names five Pods.
func TestReporterNamesTheFirst(t *testing.T) {
	t.Parallel()
	pods := map[string]string{}
	for _, name := range []string{"g", "f", "e", "d", "c", "b", "a"} {
		pods[name] = name + " (full)"
	}
	if got, want := firstOf(pods), "a (full), b (full), c (full), d (full), e (full) and 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
