// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// server is a fake cache or API server that gives the same answers to all requests.
type server struct {
	client.Client

	get, create error
	labels      map[string]string // of what Get returns
	orphans     []discoveryv1.EndpointSlice
	eps         []v1.DanmEp
	deleted     []string
}

func (s *server) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if s.get == nil {
		obj.SetName(key.Name)
		obj.SetLabels(s.labels)
	}
	return s.get
}

func (s *server) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *discoveryv1.EndpointSliceList:
		l.Items = s.orphans
	case *v1.DanmEpList:
		l.Items = s.eps
	}
	return nil
}

func (s *server) Create(context.Context, client.Object, ...client.CreateOption) error {
	return s.create
}

func (s *server) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	s.deleted = append(s.deleted, obj.GetName())
	return nil
}

// events counts Events.
type events int

func (e *events) Event(runtime.Object, string, string, string) { *e++ }

func newTested(cached, direct *server, recorded *events) *Reconciler {
	return newReconciler(Config{Events: recorded}, cached, direct, RegisterMetrics(prometheus.NewRegistry()))
}

var (
	errGone     = apierrors.NewNotFound(corev1.Resource("services"), "web")
	errConflict = apierrors.NewConflict(corev1.Resource("services"), "web", nil)
)

// The delay of a Service that stays stale grows.
func TestStaleIsRetriedLessAndLess(t *testing.T) {
	t.Parallel()
	cached := &server{get: errConflict}
	r := newTested(cached, nil, nil)
	req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}}
	var got []time.Duration
	reconcileOnce := func() {
		t.Helper()
		result, err := r.Reconcile(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, result.RequeueAfter)
	}
	for range 3 {
		reconcileOnce()
	}
	cached.get = errGone // nothing to do, which is good
	reconcileOnce()
	cached.get = errConflict
	reconcileOnce()
	if diff := cmp.Diff([]time.Duration{staleRetryDelay, 2 * staleRetryDelay, 4 * staleRetryDelay, 0, staleRetryDelay}, got); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
	for range 20 {
		reconcileOnce()
	}
	if last := got[len(got)-1]; last != maxRetryDelay {
		t.Errorf("a delay of %s at last, want %s", last, maxRetryDelay)
	}
}

// A slice of ours that names no Service is deleted, although a Service without a name cannot be
// read.
func TestOrphanIsDeleted(t *testing.T) {
	t.Parallel()
	slice := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-1"}}
	direct := &server{get: apierrors.NewBadRequest("resource name may not be empty")}
	r := newTested(&server{get: errGone, orphans: []discoveryv1.EndpointSlice{slice}}, direct, nil)
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns"}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"web-1"}, direct.deleted); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
}

// A slice that lost its label queues its owner.
func TestServiceOf(t *testing.T) {
	t.Parallel()
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u"}}
	owner := *metav1.NewControllerRef(svc, corev1.SchemeGroupVersion.WithKind("Service"))
	cases := map[string]struct {
		reason, label string
		owners        []metav1.OwnerReference
		want          []string
	}{
		"Usual":   {reason: "The label names the owner.", label: "web", owners: []metav1.OwnerReference{owner}, want: []string{"ns/web"}},
		"Moved":   {reason: "Both the Service in the label and the owner are queued.", label: "db", owners: []metav1.OwnerReference{owner}, want: []string{"ns/db", "ns/web"}},
		"Removed": {reason: "A slice without the label is deleted.", owners: []metav1.OwnerReference{owner}, want: []string{"ns/", "ns/web"}},
		"Orphan":  {reason: "The slice has no owner.", label: "web", want: []string{"ns/web"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", OwnerReferences: tc.owners}}
			if tc.label != "" {
				slice.Labels = map[string]string{discoveryv1.LabelServiceName: tc.label}
			}
			var got []string
			for _, req := range serviceOf(t.Context(), slice) {
				got = append(got, req.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// Endpoints that exist are another owner's only if they have no label of ours.
func TestEndpointsThatExist(t *testing.T) {
	t.Parallel()
	exists := apierrors.NewAlreadyExists(corev1.Resource("endpoints"), "web")
	cases := map[string]struct {
		reason string
		direct *server
		events events
		check  func(error) bool
	}{
		"Ours":   {reason: "The cache was behind.", direct: &server{create: exists, labels: map[string]string{discoveryv1.LabelManagedBy: svcwatcher.ManagedBy}}, check: apierrors.IsConflict},
		"Others": {reason: "Endpoints of another owner stay.", direct: &server{create: exists}, events: 1, check: apierrors.IsAlreadyExists},
		"Gone":   {reason: "They were deleted meanwhile, and are created by the next try.", direct: &server{create: exists, get: errGone}, check: apierrors.IsNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var recorded events
			r := newTested(nil, tc.direct, &recorded)
			svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
			if err := r.createLegacyEndpoints(t.Context(), svc, svcwatcher.LegacyEndpoints(svc, nil)); !tc.check(err) || recorded != tc.events {
				t.Errorf("%s: %d Events, error %v", tc.reason, recorded, err)
			}
		})
	}
}

// stored is a fake cache with one Service and nothing else.
type stored struct {
	server

	svc *corev1.Service
}

func (s *stored) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return errGone
	}
	s.svc.DeepCopyInto(svc)
	return nil
}

// A rejected write is reported again after a successful one, and so is a network that the Service
// did not name in between.
func TestSuccessfulWriteEndsARejection(t *testing.T) {
	t.Parallel()
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "web", Annotations: map[string]string{"danm.io/selector": `{"app":"a"}`, "danm.io/network": "net"},
	}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
	var recorded events
	cached := &stored{svc: svc}
	r := newTested(nil, nil, &recorded)
	r.reader.cached, r.reader.networks = cached, &networkCache{metadata: cached}
	key := client.ObjectKeyFromObject(svc)
	r.reporter.warn(svc, subjectWrite, v1.ReasonEndpointsNotWritten, "rejected")
	r.reporter.warn(svc, "earlier network", v1.ReasonNetworkNotFound, "missing")
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if recorded != 3 {
		t.Errorf("%d Events, want those two and one of the network that does not exist", recorded)
	}
	r.reporter.warn(svc, subjectWrite, v1.ReasonEndpointsNotWritten, "rejected")
	r.reporter.warn(svc, "earlier network", v1.ReasonNetworkNotFound, "missing")
	if recorded != 5 {
		t.Errorf("%d Events, want both reported again", recorded)
	}
}
