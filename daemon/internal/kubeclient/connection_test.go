// SPDX-License-Identifier: Apache-2.0

package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

func TestAttachError(t *testing.T) {
	t.Parallel()
	danmeps := schema.GroupResource{Group: "danm.io", Resource: "danmeps"}
	cases := map[string]struct {
		reason    string
		err       error
		is, isNot error
	}{
		"NotFound":        {"The object does not exist.", apierrors.NewNotFound(danmeps, "x"), attach.ErrNotFound, attach.ErrTryAgain},
		"Unreachable":     {"The API server may become reachable.", errors.New("connection refused"), attach.ErrTryAgain, attach.ErrNotFound},
		"TooManyRequests": {"The API server may become less busy.", apierrors.NewTooManyRequests("x", 1), attach.ErrTryAgain, attach.ErrNotFound},
		"Forbidden":       {"A retry does not help.", apierrors.NewForbidden(danmeps, "x", nil), nil, attach.ErrTryAgain},
		"Mapped":          {"An error that was mapped before keeps its meaning.", fmt.Errorf("x: %w", attach.ErrNotFound), attach.ErrNotFound, attach.ErrTryAgain},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := AttachError(tc.err)
			if !errors.Is(got, tc.err) {
				t.Errorf("%s: %v does not wrap its cause %v", tc.reason, got, tc.err)
			}
			if tc.is != nil && !errors.Is(got, tc.is) {
				t.Errorf("%s: %v is not %v", tc.reason, got, tc.is)
			}
			if tc.isNot != nil && errors.Is(got, tc.isNot) {
				t.Errorf("%s: %v is %v", tc.reason, got, tc.isNot)
			}
		})
	}
	if err := AttachError(nil); err != nil {
		t.Errorf("AttachError(nil): got %v, want nil", err)
	}
}

// An informer that has stopped takes no handler. While the daemon ends this is no failure.
func TestWatchError(t *testing.T) {
	t.Parallel()
	stopped := errors.New("it has stopped already")
	ended, end := context.WithCancel(t.Context())
	end()
	cases := map[string]struct {
		reason string
		ctx    context.Context
		want   error
	}{
		"Failure": {"The informer stopped although the daemon runs.", t.Context(), stopped},
		"End":     {"The informer stopped because the daemon ends.", ended, context.Canceled},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := WatchError(tc.ctx, "Pods", stopped); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}

// The daemon adds the finalizer to DanmEps that lack it, so that the cache must have it, and nothing else.
func TestStripDanmEp(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason       string
		before, want []string
	}{
		"Node":  {"Only this finalizer matters.", []string{"example.com/x", v1.NodeFinalizer}, []string{v1.NodeFinalizer}},
		"Other": {"It lacks the node's.", []string{"example.com/x"}, nil},
		"None":  {"An uninstallation has removed it.", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Finalizers: tc.before, Labels: map[string]string{"a": "b"}}}
			if _, err := stripDanmEp(o); err != nil || !slices.Equal(o.Finalizers, tc.want) || len(o.Labels) > 0 {
				t.Errorf("%s: got finalizers %v, labels %v, %v, want %v", tc.reason, o.Finalizers, o.Labels, err, tc.want)
			}
		})
	}
}
