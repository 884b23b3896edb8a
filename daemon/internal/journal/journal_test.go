// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// comparePrefixes compares netip.Prefix values.
var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

// open opens a journal until the end of the test.
func open(tb testing.TB, path string) *journal.Journal {
	tb.Helper()
	j, err := journal.Open(path, journal.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = j.Close() })
	return j
}

// record returns a record with all kinds of fields.
func record(id, ifName string) *attach.Record {
	return &attach.Record{
		ContainerID: id, IfName: ifName, NetName: "patchbay", Netns: "/run/netns/cni-1", BootID: "boot",
		PodNamespace: "ns", PodName: "pod", PodUID: "uid", Labels: map[string]string{"app": "web"},
		State: attach.Attaching,
		Interfaces: []attach.Interface{{
			Name: "eth0", Network: network.Network{Ref: network.Ref{Kind: "DanmNet", Namespace: "ns", Name: "n"}},
			V4: netip.MustParsePrefix("10.0.0.5/24"), V6: netip.MustParsePrefix("2001:db8::5/64"),
			MAC: "02:00:00:00:00:01", MTU: 1500, Result: []byte(`{"ips":[]}`), EndpointName: "e",
		}},
	}
}

// A record remains after the daemon's end until it is deleted.
func TestRecordOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "journal.db")
	want := record("c1", "eth0")
	first := open(t, path)
	for _, rec := range []*attach.Record{want, record("c2", "eth0")} {
		if err := first.Put(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Delete("c2", "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, path)
	got, err := second.Get("c1", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, comparePrefixes); diff != "" {
		t.Errorf("Get after a restart: -want +got:\n%s", diff)
	}
	recs, err := second.List()
	if diff := cmp.Diff([]*attach.Record{want}, recs, comparePrefixes); diff != "" || err != nil {
		t.Errorf("List after a restart: error %v, -want +got:\n%s", err, diff)
	}
}

// Get returns ErrNotFound for a missing record, and Delete succeeds.
func TestMissingRecord(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"))
	if _, err := j.Get("c", "eth0"); !errors.Is(err, attach.ErrNotFound) {
		t.Errorf("Get: got %v, want ErrNotFound", err)
	}
	if err := j.Delete("c", "eth0"); err != nil {
		t.Errorf("Delete: got %v, want no error", err)
	}
}

// Each method rejects an invalid key.
func TestKeysAreChecked(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"))
	cases := map[string]struct{ reason, id, ifName string }{
		"NoContainer": {"A key must have a container ID.", "", "eth0"},
		"NoInterface": {"A key must have an interface name.", "c", ""},
		"Separator":   {"NUL would make two pairs the same key.", "c\x00eth0", "x"},
		"Long":        {"bbolt would fail the commit of all changes.", strings.Repeat("c", 1024), "eth0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, get := j.Get(tc.id, tc.ifName)
			for method, err := range map[string]error{
				"Get": get, "Put": j.Put(record(tc.id, tc.ifName)), "Delete": j.Delete(tc.id, tc.ifName),
			} {
				if err == nil || errors.Is(err, attach.ErrNotFound) {
					t.Errorf("%s: %s: got %v, want an error about the key", tc.reason, method, err)
				}
			}
		})
	}
}

// In any order of writes, the journal has the content of a map, also after it was opened again.
func TestJournalIsAMap(t *testing.T) {
	t.Parallel()
	dir, run := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		path := filepath.Join(dir, fmt.Sprint(run))
		j, err := journal.Open(path, journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = j.Close() }()
		model := map[string]*attach.Record{}
		check := func() {
			recs, err := j.List()
			got := map[string]*attach.Record{}
			for _, rec := range recs {
				got[rec.ContainerID] = rec
			}
			if diff := cmp.Diff(model, got, comparePrefixes); diff != "" || err != nil {
				t.Fatalf("List: error %v, -want +got:\n%s", err, diff)
			}
		}
		id := rapid.SampledFrom([]string{"a", "ab", "b", "c"})
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"put": func(t *rapid.T) {
				rec := record(id.Draw(t, "id"), "eth0")
				rec.PodName = rapid.String().Draw(t, "name")
				if err := j.Put(rec); err != nil {
					t.Fatal(err)
				}
				model[rec.ContainerID] = rec
			},
			"delete": func(t *rapid.T) {
				k := id.Draw(t, "id")
				if err := j.Delete(k, "eth0"); err != nil {
					t.Fatal(err)
				}
				delete(model, k)
			},
			"reopen": func(t *rapid.T) {
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				if j, err = journal.Open(path, journal.Options{}); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

// Concurrent writers find their records.
func TestConcurrentPuts(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"))
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			rec := record(fmt.Sprintf("c%d", i), "eth0")
			for _, s := range []attach.State{attach.Attaching, attach.Attached, attach.Released} {
				rec.State = s
				if err := j.Put(rec); err != nil {
					t.Error(err)
				}
				got, err := j.Get(rec.ContainerID, rec.IfName)
				if err != nil || got.State != s {
					t.Errorf("Get after Put of %s %s: got %v and error %v", rec.ContainerID, s, got, err)
				}
			}
			if i%2 == 0 {
				if err := j.Delete(rec.ContainerID, rec.IfName); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if recs, err := j.List(); err != nil || len(recs) != 32 {
		t.Errorf("List: got %d records and %v, want 32", len(recs), err)
	}
}

// Put fails after Close, because the record is not on disk.
func TestPutAfterClose(t *testing.T) {
	t.Parallel()
	j := open(t, filepath.Join(t.TempDir(), "j"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Put(record("c", "eth0")); err == nil {
		t.Error("Put after Close: got no error, want one")
	}
}

// A second Open fails with the holder's name, or waits for the lock.
func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	first, err := journal.Open(path, journal.Options{Holder: "patchbayd-abc"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = journal.Open(path, journal.Options{Wait: 60 * time.Millisecond})
	if !errors.Is(err, journal.ErrLocked) || !strings.Contains(err.Error(), "patchbayd-abc") {
		t.Errorf("second Open: got %v, want ErrLocked with the holder's name", err)
	}
	opened := make(chan error, 1)
	go func() {
		second, err := journal.Open(path, journal.Options{Wait: time.Minute})
		if err == nil {
			err = second.Close()
		}
		opened <- err
	}()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("Open that waits for Close: %v", err)
	}
}

// The wait for the lock ends with the context.
func TestWaitForTheLockEndsWithTheContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.db")
	open(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := journal.OpenContext(ctx, path, journal.Options{Wait: time.Hour})
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, journal.ErrLocked) {
		t.Errorf("got %v, want the error of the context", err)
	}
}
