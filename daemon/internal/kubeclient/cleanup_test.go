// SPDX-License-Identifier: Apache-2.0

package kubeclient

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
)

// daemonSets answers reads of a DaemonSet that is being deleted. It first returns the errors, and the last one for ever
// if that is so.
type daemonSets struct {
	client.Client

	errs    []error
	forever bool
}

// Get implements client.Client.
func (d *daemonSets) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if len(d.errs) > 0 {
		err := d.errs[0]
		if len(d.errs) > 1 || !d.forever {
			d.errs = d.errs[1:]
		}
		return err
	}
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	o.SetAnnotations(map[string]string{v1alpha1.CleanUpAnnotation: "uid-1"})
	return nil
}

// All daemons stop in the same seconds. An API server that does not answer one of them must not leave a node behind.
func TestDaemonSetRemoval(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "patchbayd", nil)
	refused, cleanUp, deleted := errors.New("connection refused"), Removal{Deleted: true, CleanUp: "uid-1"}, Removal{Deleted: true}
	for name, tc := range map[string]struct {
		reason    string
		kube      daemonSets
		want      Removal
		wantError error
	}{
		"Answers":     {"The operator deletes it.", daemonSets{}, cleanUp, nil},
		"Restarts":    {"The API server is back a moment later.", daemonSets{errs: []error{refused, apierrors.NewServiceUnavailable(""), refused}}, cleanUp, nil},
		"Starts":      {"An API server that starts knows no rights yet.", daemonSets{errs: []error{forbidden, refused, forbidden, forbidden}}, cleanUp, nil},
		"Gone":        {"Nobody tells any more who has deleted it.", daemonSets{errs: []error{apierrors.NewNotFound(schema.GroupResource{}, "patchbayd")}}, deleted, nil},
		"Proxy":       {"A proxy without a server answers so, too.", daemonSets{errs: []error{apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "", 0, true)}}, cleanUp, nil},
		"NoRights":    {"The rights were deleted with it.", daemonSets{errs: []error{forbidden}, forever: true}, deleted, nil},
		"Unreachable": {"The DaemonSet may exist.", daemonSets{errs: []error{refused}, forever: true}, Removal{}, refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				got, err := (&Connection{Direct: &tc.kube}).DaemonSetRemoval(ctx, "patchbay-system", "patchbayd")
				if got != tc.want || !errors.Is(err, tc.wantError) {
					t.Errorf("%s: got %+v, %v, want %+v, %v", tc.reason, got, err, tc.want, tc.wantError)
				}
			})
		})
	}
}
