// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

func TestFinalizerRecentlyAdded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	entry := func(fields string, age time.Duration) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(now.Add(-age))
		return metav1.ManagedFieldsEntry{Manager: "patchbayd", Time: &at, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const ours, others = `{"f:metadata":{"f:finalizers":{".":{},"v:\"danm.io/in-use\"":{}}}}`, `{"f:metadata":{"f:labels":{"f:a":{}}}}`
	cases := map[string]struct {
		reason string
		fields []metav1.ManagedFieldsEntry
		want   bool
	}{
		"Now":      {"The DELETE may have begun before the finalizer was set.", []metav1.ManagedFieldsEntry{entry(others, time.Hour), entry(ours, time.Second)}, true},
		"Ahead":    {"Clocks differ.", []metav1.ManagedFieldsEntry{entry(ours, -5*time.Second)}, true},
		"LongAgo":  {"Every present DELETE has seen the finalizer.", []metav1.ManagedFieldsEntry{entry(others, time.Second), entry(ours, time.Hour)}, false},
		"Stripped": {"Without managed fields the age is unknown.", nil, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &v1.DanmNet{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.fields}}
			if got := finalizerRecentlyAdded(o, now); got != tc.want {
				t.Errorf("%s\nprotectedLately: got %v", tc.reason, got)
			}
		})
	}
}
