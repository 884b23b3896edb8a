// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/desiredstate"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

func newTestAssignments(t *testing.T) (*Assignments, *scope.Scope) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	s := &scope.Scope{
		Key:        kinds.Key{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Namespace: "ns", Name: "web"},
		Object:     &unstructured.Unstructured{Object: map[string]any{}},
		Assignment: &v1alpha1.Assignment{},
	}
	return &Assignments{Direct: c, Expectations: NewExpectations(c, time.Now)}, s
}

// After another client has deleted an Assignment, the cache still has it for a while.
func TestDeletedAssignmentIsStale(t *testing.T) {
	t.Parallel()
	w, s := newTestAssignments(t)
	key := s.Key.Assignment()
	s.Assignment.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "deleted", ResourceVersion: "1"}
	next := s.Assignment.DeepCopy()
	next.Spec.Decision.Number++
	if _, err := w.Write(t.Context(), s, next, true); !errors.Is(err, scope.ErrStale) {
		t.Errorf("spec: got %v, want %v", err, scope.ErrStale)
	}
	status := desiredstate.Status{Assignment: v1alpha1.AssignmentStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionPlaced}}}}
	if _, _, err := w.WriteStatus(t.Context(), s, s.Assignment, status, false); !errors.Is(err, scope.ErrStale) {
		t.Errorf("status: got %v, want %v", err, scope.ErrStale)
	}
}

func TestWriteAssignmentWithoutTargets(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		reports bool
		works   map[string]*v1alpha1.Work
		placed  bool
		want    bool
	}{
		"Unneeded": {reason: "It would be deleted at once, and created again."},
		"Reports":  {reason: "It reports why the object has no cluster.", reports: true, want: true},
		"Works":    {reason: "It lasts until the Works are deleted.", works: map[string]*v1alpha1.Work{"east": {}}, want: true},
		"Placed":   {reason: "The object has the finalizer: the cache may lack its Assignment and Works.", placed: true, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s := newTestAssignments(t)
			s.Works = tc.works
			if tc.placed {
				s.Object.SetFinalizers([]string{v1alpha1.PlacedFinalizer})
			}
			if _, err := w.Write(t.Context(), s, &v1alpha1.Assignment{}, tc.reports); err != nil {
				t.Fatal(err)
			}
			err := w.Direct.Get(t.Context(), s.Key.Assignment(), &v1alpha1.Assignment{})
			if client.IgnoreNotFound(err) != nil || (err == nil) != tc.want {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}
