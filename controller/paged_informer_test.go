// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// pods is a fake API server with Pods, which answers in pages on request.
type pods struct {
	count   int
	expires bool // the second page is too late
	asked   []string
}

func (p *pods) list(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	p.asked = append(p.asked, fmt.Sprintf("version %q limit %d from %q", opts.ResourceVersion, opts.Limit, opts.Continue))
	if p.expires && opts.Continue != "" {
		return nil, apierrors.NewResourceExpired("too late")
	}
	first, _ := strconv.Atoi(opts.Continue)
	page := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for n := first; n < p.count; n++ {
		if opts.Limit > 0 && int64(n-first) == opts.Limit {
			page.Continue = strconv.Itoa(n)
			break
		}
		page.Items = append(page.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(n), Annotations: map[string]string{"large": "text"}}})
	}
	return page, nil
}

// slimmed removes the annotations, and reports how many objects it has seen.
func slimmed(seen *int) cache.TransformFunc {
	return func(obj any) (any, error) {
		*seen++
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return obj, nil
		}
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}, nil
	}
}

func TestListIsPagedAndSlim(t *testing.T) {
	t.Parallel()
	const page = `version "" limit 500 from `
	cases := map[string]struct {
		reason string
		server pods
		want   []string
		seen   int
	}{
		"None":    {reason: "An empty list is a valid list.", want: []string{page + `""`}},
		"One":     {reason: "Few Pods fit on one page.", server: pods{count: 3}, want: []string{page + `""`}, seen: 3},
		"Many":    {reason: "Many Pods come page by page.", server: pods{count: 1001}, want: []string{page + `""`, page + `"500"`, page + `"1000"`}, seen: 1001},
		"Expired": {reason: "When a page expires, the rest comes in one list.", server: pods{count: 600, expires: true}, want: []string{page + `""`, page + `"500"`, `version "" limit 0 from ""`}, seen: 1100},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := 0
			l := &pagedLister{ListerWatcherWithContext: &cache.ListWatch{ListWithContextFunc: tc.server.list}, transform: slimmed(&seen)}
			list, err := l.list(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, tc.server.asked); diff != "" || seen != tc.seen {
				t.Errorf("%s: %d objects slimmed, want %d; asked (-want +got):\n%s", tc.reason, seen, tc.seen, diff)
			}
			about, err := meta.ListAccessor(list)
			if err != nil || about.GetResourceVersion() != "7" || about.GetContinue() != "" {
				t.Errorf("%s: list is %+v, error %v", tc.reason, about, err)
			}
			items, err := meta.ExtractList(list)
			if err != nil || len(items) != tc.server.count {
				t.Fatalf("%s: %d items, want %d, error %v", tc.reason, len(items), tc.server.count, err)
			}
			for i, item := range items {
				if diff := cmp.Diff(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i)}}, item); diff != "" {
					t.Fatalf("%s: item %d (-want +got):\n%s", tc.reason, i, diff)
				}
			}
		})
	}
}

func TestListErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	refuse := &pagedLister{ListerWatcherWithContext: &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, broken },
	}, transform: slimmed(new(int))}
	unslim := &pagedLister{ListerWatcherWithContext: &cache.ListWatch{ListWithContextFunc: (&pods{count: 1}).list}, transform: func(any) (any, error) { return nil, broken }}
	for name, l := range map[string]*pagedLister{"refused": refuse, "not slimmed": unslim} {
		if _, err := l.list(t.Context(), metav1.ListOptions{}); !errors.Is(err, broken) {
			t.Errorf("a list that is %s: error %v, want %v", name, err, broken)
		}
	}
}

// The informer has the listed objects and the later ones, all stripped.
func TestInformer(t *testing.T) {
	t.Parallel()
	server, later, seen := &pods{count: 700}, watch.NewFake(), 0
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  server.list,
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return later, nil },
	}, unstreamed{})
	informer := newPagedInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
	if err := informer.SetTransform(slimmed(&seen)); err != nil {
		t.Fatal(err)
	}
	added := make(chan string)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok && len(pod.Annotations) == 0 {
			select {
			case added <- pod.Name:
			case <-t.Context().Done():
			}
		}
	}}); err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(t.Context())
	go later.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "late", Annotations: map[string]string{"large": "text"}}})
	names := map[string]bool{}
	for len(names) < 701 {
		names[<-added] = true
	}
	if !names["0"] || !names["699"] || !names["late"] {
		t.Errorf("the informer knows %d Pods, but not the first, the last and the late one", len(names))
	}
}

// unstreamed is a client whose lists are not streamed.
type unstreamed struct{}

func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

// The wrapped client reports whether the API server streams lists.
func TestStreamsStay(t *testing.T) {
	t.Parallel()
	plain := &cache.ListWatch{}
	for want, lw := range map[bool]cache.ListerWatcher{false: plain, true: cache.ToListWatcherWithWatchListSemantics(plain, unstreamed{})} {
		if paged, _ := newPagedListerWatcher(lw); watchlist.DoesClientNotSupportWatchListSemantics(paged) != want {
			t.Errorf("one that does not stream (%t) is taken for one that does, or the other way", want)
		}
	}
}

// The informer strips a page again that was stripped before, so stripping twice must equal
// stripping once.
func TestSlimTwiceIsOnce(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", Labels: map[string]string{"app": "a"}, Annotations: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}}}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: map[string]string{"danm.io/selector": `{"a":"b"}`, "danm.io/network": "n"}}, Spec: corev1.ServiceSpec{ClusterIP: "None"}}
	for obj, by := range cacheByObject() {
		var full any = obj
		switch obj.(type) {
		case *corev1.Pod:
			full = pod
		case *corev1.Service:
			full = svc
		case *v1.DanmEp:
			full = &v1.DanmEp{ObjectMeta: pod.ObjectMeta, Spec: v1.DanmEpSpec{Pod: "a", CID: "c", Interface: v1.DanmEpInterface{Address: "10.0.0.1/8"}}}
		case *v1.NodeNetwork:
			full = &v1.NodeNetwork{ObjectMeta: pod.ObjectMeta, Status: v1.NodeNetworkStatus{Links: []v1.HostLink{
				{Name: "a", State: v1.LinkUp, Networks: []string{"n"}}, {Name: "b", State: "Failed", Error: "e"}, {Name: "c", State: v1.LinkUp, Networks: []string{"m"}},
			}}}
		case *corev1.Node:
			full = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelTopologyZone: "z", "a": "b"}}}
		}
		once, err := by.Transform(full)
		if err != nil {
			t.Fatal(err)
		}
		slim, ok := once.(runtime.Object)
		if !ok {
			t.Fatalf("%T is slimmed to %T, which is no object", obj, once)
		}
		want := slim.DeepCopyObject()
		twice, err := by.Transform(once)
		if diff := cmp.Diff(want, twice); diff != "" || err != nil {
			t.Errorf("%T slimmed twice (-once +twice), error %v:\n%s", obj, err, diff)
		}
	}
}
