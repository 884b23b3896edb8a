// SPDX-License-Identifier: Apache-2.0

package networkcache

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
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// failingClient returns an error for each list.
type failingClient struct {
	client.Client
	err error
}

// List implements client.Client.
func (r failingClient) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return r.err
}

// Only a cluster without the kind has no NetworkAttachmentDefinitions. Those that the daemon may
// not read may exist.
func TestAttachmentsList(t *testing.T) {
	t.Parallel()
	kind := schema.GroupResource{Group: "k8s.cni.cncf.io", Resource: "network-attachment-definitions"}
	cases := map[string]struct {
		reason    string
		err, want error
	}{
		"NoKind":      {"The cluster does not have the kind.", &meta.NoKindMatchError{}, nil},
		"NotFound":    {"The API server does not serve the kind.", apierrors.NewNotFound(kind, ""), nil},
		"Forbidden":   {"The links of unreadable objects must stay.", apierrors.NewForbidden(kind, "", errors.New("no role")), netwatcher.ErrNetworksIncomplete},
		"Unreachable": {"It is unknown whether the cluster has the kind.", errors.New("connection refused"), attach.ErrTryAgain},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				a := NewAttachments(&kubeclient.Connection{Direct: failingClient{err: tc.err}}, func() {})
				go func() { _ = a.Run(ctx) }()
				synctest.Wait()
				if _, err := a.List(); !errors.Is(err, tc.want) {
					t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
				}
			})
		})
	}
}

// A change between forbidden and allowed is reported once.
func TestAttachmentsReportChanges(t *testing.T) {
	t.Parallel()
	changes := 0
	a := NewAttachments(&kubeclient.Connection{}, func() { changes++ })
	for _, forbidden := range []bool{true, true, false, false} {
		a.setSynced(forbidden)
	}
	list, err := a.List()
	if changes != 2 || err != nil || len(list) > 0 {
		t.Errorf("got %d changes, list %v and error %v, want 2 changes and an empty list", changes, list, err)
	}
	a.models[network.Ref{Name: "n"}] = &network.Network{}
	if list, err = a.List(); err != nil || len(list) != 1 {
		t.Errorf("got %v and error %v, want 1 model", list, err)
	}
}
