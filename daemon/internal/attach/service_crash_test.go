// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// afterwards are the ways in which the world goes on once a daemon was killed.
// Each ends with the sandbox gone.
func afterwards() map[string]func(*world) error {
	return map[string]func(*world) error{
		"DEL": func(w *world) error { return w.nextLife(deleteIt) },
		"DELWithoutNamespace": func(w *world) error {
			w.end("a")
			return w.nextLife(deleteIt)
		},
		"ADDAgain": func(w *world) error {
			return w.nextLife(func(l *life) error {
				if _, err := l.Add(context.Background(), w.sandbox("a")); err != nil {
					return fmt.Errorf("repeated ADD: %w", err)
				}
				l.drain()
				if len(w.published()) != 3 {
					return fmt.Errorf("DanmEps after repeated ADD: %q", w.published())
				}
				return deleteIt(l)
			})
		},
		"PowerCut": func(w *world) error {
			w.powerCut()
			return w.nextLife(func(*life) error { return nil })
		},
	}
}

// nextLife starts a daemon, lets it work, and publishes before and after.
func (w *world) nextLife(work func(*life) error) error {
	l, err := w.start(nil)
	if err != nil {
		return err
	}
	l.drain()
	defer l.drain()
	return work(l)
}

func deleteIt(l *life) error { return l.Del(context.Background(), request("a")) }

// A daemon killed at any call of ADD, or while DanmEps are created, leaves
// nothing that the next life does not bring to its end.
func TestKilledInAdd(t *testing.T) {
	t.Parallel()
	eachKill(t, func(w *world, l *life) bool {
		req := w.sandbox("a")
		_, err := l.Add(context.Background(), req)
		l.drain()
		return err == nil
	})
}

// The same for DEL, and while DanmEps and addresses are given back.
func TestKilledInDel(t *testing.T) {
	t.Parallel()
	eachKill(t, func(w *world, l *life) bool {
		faults := l.faults
		l.faults = nil
		_, err := l.Add(context.Background(), w.sandbox("a"))
		l.drain()
		l.calls, l.faults = nil, faults
		if err == nil {
			err = l.Del(context.Background(), request("a"))
		}
		l.drain()
		return err == nil
	})
}

// eachKill kills a daemon at each call of work in turn, and lets the world go on
// in each way.
func eachKill(t *testing.T, work func(*world, *life) bool) {
	t.Helper()
	for name, goOn := range afterwards() {
		for kind, f := range kinds(true) {
			t.Run(name+kind, func(t *testing.T) {
				t.Parallel()
				for k := 1; ; k++ {
					w := newWorld()
					l := w.mustStart(t)
					l.calls, l.faults = nil, map[int]fault{k: f}
					done := work(w, l)
					if len(l.calls) < k {
						if !done || k < 8 {
							t.Fatalf("after %d kills: calls %q", k-1, l.calls)
						}
						return
					}
					if err := w.check(); err != nil {
						t.Fatalf("killed in %s: %v", l.calls[k-1], err)
					}
					if err := goOn(w); err != nil && !finished(w, l) {
						t.Fatalf("killed in %s: %v", l.calls[k-1], err)
					}
					w.mustBeEmpty(t, "after a kill in "+l.calls[k-1])
				}
			})
		}
	}
}

// finished reports whether the sandbox was released before the daemon's end: a
// repeated ADD is then told to come back later, or starts anew.
func finished(w *world, l *life) bool {
	return slices.Contains(l.calls, "Journal.Put released") && len(w.records) == 0
}

func TestResume(t *testing.T) {
	t.Parallel()
	rec := func(state attach.State, boot, uid string) *attach.Record {
		return &attach.Record{
			ContainerID: "a", IfName: "eth0", BootID: boot, Netns: request("a").Netns, State: state,
			Interfaces: []attach.Interface{{Name: "eth0", EndpointName: "e", EndpointUID: uid}},
		}
	}
	cases := map[string]struct {
		reason string
		rec    *attach.Record
		gone   bool
		want   []string
	}{
		"Unpublished": {
			reason: "the DanmEp may be missing", rec: rec(attach.Attached, "boot-0", ""),
			want: []string{"Publish"},
		},
		"Published": {reason: "nothing to do", rec: rec(attach.Attached, "boot-0", "u")},
		"PublishedWithoutNamespace": {
			reason: "the runtime sends DEL, or has it among the pending ones", rec: rec(attach.Attached, "boot-0", "u"), gone: true,
		},
		"Released":  {reason: "addresses are still to be given back", rec: rec(attach.Released, "boot-0", "u"), want: []string{"Release"}},
		"Attaching": {reason: "the runtime asks again, or sends DEL", rec: rec(attach.Attaching, "boot-0", "")},
		"AttachingWithoutNamespace": {
			reason: "nobody will ask again", rec: rec(attach.Attaching, "boot-0", ""), gone: true,
			want: []string{"Detach eth0", "Journal.Delete", "Discard"},
		},
		"Detaching": {
			reason: "a DEL has been asked for", rec: rec(attach.Detaching, "boot-0", "u"),
			want: []string{"Detach eth0", "Journal.Put released", "Release"},
		},
		"Rebooted": {
			reason: "no namespace outlives its kernel", rec: rec(attach.Attached, "boot-x", "u"),
			want: []string{"Detach eth0", "Journal.Put released", "Release"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.put(tc.rec)
			if !tc.gone {
				w.sandbox("a")
			}
			l := w.mustStart(t)
			got := slices.DeleteFunc(l.made(""), func(c string) bool { return c == "Journal.List" || c == "Journal.Get" || c == "Exists" })
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// listed is a journal as it was when the daemon started.
type listed struct {
	attach.Journal
	records []*attach.Record
}

func (j listed) List() ([]*attach.Record, error) { return j.records, nil }

// While a daemon takes up its journal, DELs come. What one of them has ended is not
// taken up from an old copy: its addresses may be another Pod's by now.
func TestResumeReadsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l := w.mustStart(t)
	if _, err := l.Add(context.Background(), w.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	records, err := journal{l}.List()
	if err != nil || len(records) != 1 {
		t.Fatalf("journal: %d records, %v", len(records), err)
	}
	l.drain()
	w.powerCut()
	if err := w.nextLife(func(*life) error { return nil }); err != nil {
		t.Fatal(err)
	}
	w.mustBeEmpty(t, "after the DEL")
	l = w.mustStart(t)
	again := l.Config
	again.Journal = listed{journal{l}, records}
	if err := attach.New(again).Resume(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.mustBeEmpty(t, "after the old copy's turn")
}
