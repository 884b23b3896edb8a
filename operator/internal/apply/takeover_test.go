// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTransfer(t *testing.T) {
	t.Parallel()
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: operation, Subresource: subresource, APIVersion: "apps/v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		}
	}
	const update, apply = metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	people := entry("kubectl-label", update, "", `{"f:metadata":{"f:labels":{"f:team":{}}}}`)
	status := entry("kubectl", update, "status", `{"f:status":{"f:x":{}}}`)
	cases := map[string]struct {
		reason     string
		have, want []metav1.ManagedFieldsEntry
	}{
		"Nobody": {"an object of another client", []metav1.ManagedFieldsEntry{people}, []metav1.ManagedFieldsEntry{people}},
		"Installers": {
			"all installers together", []metav1.ManagedFieldsEntry{
				entry("kubectl-client-side-apply", update, "", `{"f:spec":{"f:a":{}}}`), people, entry("helm", apply, "", `{"f:spec":{"f:b":{}}}`), status,
			},
			[]metav1.ManagedFieldsEntry{people, status, entry("patchbay-operator", apply, "", `{"f:spec":{"f:a":{},"f:b":{}}}`)},
		},
		"Own": {
			"kubectl has changed it later, which is drift", []metav1.ManagedFieldsEntry{entry("patchbay-operator", apply, "", `{}`), entry("kubectl", apply, "", `{"f:spec":{}}`)},
			[]metav1.ManagedFieldsEntry{entry("patchbay-operator", apply, "", `{}`), entry("kubectl", apply, "", `{"f:spec":{}}`)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, changed, err := transfer(tc.have)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if changed != (name == "Installers") {
				t.Errorf("%s: changed is %v", tc.reason, changed)
			}
		})
	}
}
