// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// unanswered answers lists with an error.
type unanswered struct {
	client.Client
	err error
}

func (r unanswered) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return r.err
}

// Only a cluster without the kind has none: what may not be read may be there.
func TestAttachmentsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	kind := schema.GroupResource{Group: "k8s.cni.cncf.io", Resource: "network-attachment-definitions"}
	cases := map[string]struct {
		reason    string
		err, want error
	}{
		"NoKind":    {"Multus is not installed", &meta.NoKindMatchError{}, nil},
		"NotFound":  {"Multus is not installed", apierrors.NewNotFound(kind, ""), nil},
		"Forbidden": {"links of theirs stay", apierrors.NewForbidden(kind, "", errors.New("no role")), netwatcher.ErrNetworksIncomplete},
		"Away":      {"nothing is known", errors.New("connection refused"), attach.ErrTryAgain},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				a := NewAttachmentCache(&Connection{Direct: unanswered{err: tc.err}}, func() {})
				go func() { _ = a.Run(ctx) }()
				synctest.Wait()
				if _, err := a.List(); !errors.Is(err, tc.want) {
					t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
				}
			})
		})
	}
}

// What was forbidden for a while is news when it is not any more.
func TestAttachmentsAreReadLater(t *testing.T) {
	t.Parallel()
	told := 0
	a := NewAttachmentCache(&Connection{}, func() { told++ })
	for _, hidden := range []bool{true, true, false, false} {
		a.setSynced(hidden)
	}
	list, err := a.List()
	if told != 2 || err != nil || len(list) > 0 {
		t.Errorf("told %d times, then %v, %v; want twice, and none", told, list, err)
	}
	a.models[network.Ref{Name: "n"}] = &network.Network{}
	if list, err = a.List(); err != nil || len(list) != 1 {
		t.Errorf("got %v, %v", list, err)
	}
}
