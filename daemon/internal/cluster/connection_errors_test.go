// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

var danmeps = schema.GroupResource{Group: "danm.io", Resource: "danmeps"}

func TestErrorsKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		err       error
		translate func(error) error
		is, isNot error
	}{
		"PortNotFound": {"a missing object", apierrors.NewNotFound(danmeps, "x"), attachError, attach.ErrNotFound, attach.ErrTryAgain},
		"PortAway":     {"the API server is away", errors.New("connection refused"), attachError, attach.ErrTryAgain, attach.ErrNotFound},
		"PortTooMany":  {"the API server is busy", apierrors.NewTooManyRequests("x", 1), attachError, attach.ErrTryAgain, attach.ErrNotFound},
		"PortRefused":  {"waiting does not help", apierrors.NewForbidden(danmeps, "x", nil), attachError, nil, attach.ErrTryAgain},
		"PortTwice":    {"already translated", fmt.Errorf("x: %w", attach.ErrNotFound), attachError, attach.ErrNotFound, attach.ErrTryAgain},
		"ClaimAgain":   {"the allocator says so", fmt.Errorf("x: %w", claims.ErrTryAgain), allocatorError, attach.ErrTryAgain, attach.ErrNotFound},
		"ClaimClosed":  {"the next daemon will answer", claims.ErrClosed, allocatorError, attach.ErrTryAgain, nil},
		"ClaimGone":    {"the network is gone", claims.ErrNotFound, allocatorError, attach.ErrNotFound, attach.ErrTryAgain},
		"ClaimFull":    {"a full pool is no reason to wait", claims.ErrExhausted, allocatorError, claims.ErrExhausted, attach.ErrTryAgain},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tc.translate(tc.err)
			if !errors.Is(got, tc.err) {
				t.Errorf("%s: %v lost its cause %v", tc.reason, got, tc.err)
			}
			if tc.is != nil && !errors.Is(got, tc.is) {
				t.Errorf("%s: %v is not %v", tc.reason, got, tc.is)
			}
			if tc.isNot != nil && errors.Is(got, tc.isNot) {
				t.Errorf("%s: %v is %v", tc.reason, got, tc.isNot)
			}
		})
	}
	if attachError(nil) != nil || allocatorError(nil) != nil {
		t.Error("no error became one")
	}
}

func TestNamespaceGone(t *testing.T) {
	t.Parallel()
	terminating := apierrors.NewForbidden(danmeps, "x", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	cases := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Terminating": {"nothing can be created any more", terminating, true},
		"Missing":     {"the namespace is gone", apierrors.NewNotFound(corev1.Resource("namespaces"), "x"), true},
		"NoKind":      {"the definition comes back", apierrors.NewGenericServerResponse(404, "POST", danmeps, "", "404 page not found", 0, true), false},
		"Quota":       {"a quota may be raised", apierrors.NewForbidden(danmeps, "x", errors.New("exceeded quota")), false},
		"None":        {"no error", nil, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := namespaceGone(tc.err); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

// Informers that have stopped take no handler: that is no fault at the daemon's end.
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
		"Fault": {"nobody asked for the end", t.Context(), stopped},
		"End":   {"the informer heard of the end first", ended, context.Canceled},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := watchError(tc.ctx, "Pods", stopped); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		err    error
		want   string
	}{
		"Exhausted":   {"through wrapping", fmt.Errorf("a: %w", claims.ErrExhausted), "AddressesExhausted"},
		"FirstCounts": {"the particular before the general", fmt.Errorf("%w: %w", attach.ErrTryAgain, claims.ErrDeleting), "NetworkDeleting"},
		"Invalid":     {"a fault of the object or the annotation", &network.InvalidError{}, "InvalidNetwork"},
		"Other":       {"anything else", errors.New("x"), "NetworkAttachmentFailed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := eventReason(tc.err); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
