// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// The cache may have a heartbeat that dates a report, and not the report that came before it.
func TestConfirmReadsReportsAgain(t *testing.T) {
	t.Parallel()
	key := kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "web"}
	work := func(available int, change func(*v1alpha1.Work)) *v1alpha1.Work {
		w := &v1alpha1.Work{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Work("west").Namespace, Name: key.RecordName(), UID: "w"},
			Spec:       v1alpha1.WorkSpec{Revision: 2},
			Status: v1alpha1.WorkStatus{
				Revision: 2, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue, Reason: "Applied"}},
				Manifests: []v1alpha1.ManifestStatus{{Ready: true, Status: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"availableReplicas":%d}`, available)}}},
			},
		}
		if change != nil {
			change(w)
		}
		return w
	}
	counts := map[string]bool{"west": false}
	for name, tc := range map[string]struct {
		reason  string
		stored  *v1alpha1.Work // nil: it was deleted
		counted map[string]bool
		stale   bool
	}{
		"same":         {"The cache has the report.", work(4, nil), counts, false},
		"more":         {"More replicas than the step counts on are available.", work(5, nil), counts, false},
		"recovered":    {"Replicas that the step takes because none is available are.", work(5, nil), map[string]bool{"west": true}, true},
		"shrinks":      {"The step takes what the cache has.", work(4, nil), map[string]bool{"west": true}, false},
		"fewer":        {"Replicas have failed.", work(3, nil), counts, true},
		"not counted":  {"The step does not rely on the cluster.", work(3, nil), nil, false},
		"not ready":    {"The object has failed.", work(4, func(w *v1alpha1.Work) { w.Status.Manifests[0].Ready = false }), counts, true},
		"other Work":   {"The replicas are those of another object.", work(4, func(w *v1alpha1.Work) { w.UID = "other" }), counts, true},
		"not reported": {"The hub has written another revision since.", work(4, func(w *v1alpha1.Work) { w.Spec.Revision = 3 }), counts, true},
		"deleted":      {"The cluster may not have the object any more.", nil, counts, true},
		"no Work":      {"A cluster without a Work counts with nothing.", nil, map[string]bool{"east": false}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			b := fake.NewClientBuilder().WithScheme(scheme)
			if tc.stored != nil {
				b.WithObjects(client.Object(tc.stored.DeepCopy()))
			}
			cached := work(4, nil)
			s := &Scope{
				Key: key, Object: &unstructured.Unstructured{}, Works: map[string]*v1alpha1.Work{"west": cached},
				Reports: map[string]WorkReport{"west": ReportOf(key.GroupKind, cached)},
			}
			err := (&Reader{direct: b.Build()}).Confirm(t.Context(), s, Resolution{}, nil, tc.counted)
			if errors.Is(err, ErrStale) != tc.stale || err != nil && !tc.stale {
				t.Errorf("%s\nConfirm: got %v, want stale %t", tc.reason, err, tc.stale)
			}
		})
	}
}
