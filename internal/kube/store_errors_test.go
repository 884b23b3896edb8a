// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

func TestStoreErrorsKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: "danm.io", Resource: "danmeps"}
	cases := map[string]struct {
		reason             string
		err                error
		conflict, notFound bool
	}{
		"Conflict": {reason: "Another client wrote first.", err: apierrors.NewConflict(resource, "x", errors.New("plain")), conflict: true},
		"Gone":     {reason: "The network was deleted.", err: apierrors.NewNotFound(resource, "x"), notFound: true},
		"Lost":     {reason: "After a lost reply the write may have been applied.", err: apierrors.NewTimeoutError("x", 1)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := storeError("update", network.Ref{}, tc.err)
			if !errors.Is(got, tc.err) {
				t.Errorf("%s: %v lost its cause %v", tc.reason, got, tc.err)
			}
			if errors.Is(got, status.ErrConflict) != tc.conflict || errors.Is(got, status.ErrNotFound) != tc.notFound {
				t.Errorf("%s: %v is taken for something else", tc.reason, got)
			}
		})
	}
}
