// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

// What a client sees of each trouble, and what the API server has of it.
func TestFailureModes(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	ns := env.Namespace(t)
	isLost := func(err error) bool { return errors.Is(err, apitest.ErrLost) }
	late := func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
	cases := map[string]struct {
		write, read func(error) bool // of what one of a few requests fails; nil when none fails
		stored      bool             // what failed is there all the same
	}{
		"Conflict":   {write: apierrors.IsConflict},
		"Busy":       {}, // client-go tries again, after a second
		"Unsent":     {write: isLost},
		"ReplyLost":  {write: isLost, stored: true},
		"Failed":     {write: apierrors.IsInternalError, stored: true},
		"WriteHangs": {write: late},
		"Unread":     {read: apierrors.IsInternalError},
		"ReadHangs":  {read: late},
		"WatchCut":   {},
		"WatchLate":  {},
	}
	for _, trouble := range apitest.FailureModes() {
		tc, ok := cases[trouble.Name]
		if !ok {
			t.Errorf("no case for %s: a trouble that never strikes proves nothing", trouble.Name)
		}
		t.Run(trouble.Name, func(t *testing.T) {
			t.Parallel()
			troubled, err := kubernetes.NewForConfig(trouble.Inject(env.Config))
			if err != nil {
				t.Fatal(err)
			}
			maps := troubled.CoreV1().ConfigMaps(ns)
			wrote := firstError(t, func(ctx context.Context) error {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: apitest.Name("trouble")}}
				_, err := maps.Create(ctx, o, metav1.CreateOptions{})
				stored := env.Client.Get(context.WithoutCancel(ctx), client.ObjectKeyFromObject(o), o) == nil
				if want := err == nil || tc.stored; stored != want {
					t.Errorf("%s\nafter %v: stored %t, want %t", trouble.Reason, err, stored, want)
				}
				return err
			})
			read := firstError(t, func(ctx context.Context) error {
				_, err := maps.List(ctx, metav1.ListOptions{Limit: 1})
				return err
			})
			for what, got := range map[string]struct {
				err  error
				want func(error) bool
			}{"write": {wrote, tc.write}, "read": {read, tc.read}} {
				if got.want == nil && got.err != nil || got.want != nil && !got.want(got.err) {
					t.Errorf("%s\n%s: got %v", trouble.Reason, what, got.err)
				}
			}
		})
	}
}

// firstError is the first error of some seconds' requests.
func firstError(t *testing.T, request func(context.Context) error) error {
	t.Helper()
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		err := request(ctx)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// A watch that is cut closes soon, and one that is late tells nothing before its time.
func TestWatchFailureModes(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	ns := env.Namespace(t)
	for _, trouble := range apitest.FailureModes() {
		if trouble.Name != "WatchCut" && trouble.Name != "WatchLate" {
			continue
		}
		t.Run(trouble.Name, func(t *testing.T) {
			t.Parallel()
			troubled, err := kubernetes.NewForConfig(trouble.Inject(env.Config))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			list, err := troubled.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			w, err := troubled.CoreV1().ConfigMaps(ns).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
			if err != nil {
				t.Fatal(err)
			}
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: apitest.Name("trouble")}}
			if trouble.Name == "WatchLate" {
				if err := env.Client.Create(ctx, o); err != nil {
					t.Fatal(err)
				}
			}
			for e := range w.ResultChan() {
				if found, ok := e.Object.(*corev1.ConfigMap); !ok || found.Name != o.Name {
					continue
				}
				if after := time.Since(o.CreationTimestamp.Time); after < 2*time.Second {
					t.Errorf("%s\nan event after %s, want it late", trouble.Reason, after)
				}
				w.Stop()
				return
			}
			if trouble.Name == "WatchLate" || time.Since(began) > 20*time.Second {
				t.Errorf("%s\nthe watch closed after %s", trouble.Reason, time.Since(began))
			}
		})
	}
}
