// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// The API server rejects an Assignment with another onDelete than Orphan and Delete: the object could never be deleted.
func TestOnDeleteOfDeletedObject(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason     string
		annotation string
		recorded   v1alpha1.OnDelete
		want       v1alpha1.OnDelete
	}{
		"Orphan":       {"The user says it last.", "Orphan", v1alpha1.OnDeleteDelete, v1alpha1.OnDeleteOrphan},
		"Delete":       {"The user says it last.", "Delete", v1alpha1.OnDeleteOrphan, v1alpha1.OnDeleteDelete},
		"absent":       {"The policy said it.", "", v1alpha1.OnDeleteOrphan, v1alpha1.OnDeleteOrphan},
		"not allowed":  {"The earlier decision stays in force.", "keep", v1alpha1.OnDeleteOrphan, v1alpha1.OnDeleteOrphan},
		"not recorded": {"The kind has a default.", "keep", "", v1alpha1.OnDeleteDelete},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := metav1.NewTime(time.Unix(10_000, 0))
			s := &scope.Scope{
				Key:    kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "web"},
				Object: &unstructured.Unstructured{}, Assignment: &v1alpha1.Assignment{}, Now: now.Time,
			}
			s.Object.SetDeletionTimestamp(&now)
			if tc.annotation != "" {
				s.Object.SetAnnotations(map[string]string{v1alpha1.OnDeleteAnnotation: tc.annotation})
			}
			s.Assignment.Spec.Decision.OnDelete = tc.recorded
			r, err := scope.Resolve(s)
			if err != nil {
				t.Fatal(err)
			}
			d, err := Assign(s, r, s.Assignment, nil, limits.NewCapacity(time.Now), limits.NewDrains())
			if err != nil {
				t.Fatal(err)
			}
			if got := NextAssignment(s, s.Assignment, d).Spec.Decision.OnDelete; got != tc.want {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
