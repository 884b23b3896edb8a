// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// Clients cannot decode a kind that is defined and not registered.
func TestEveryDefinitionIsRegistered(t *testing.T) {
	t.Parallel()
	s := runtime.NewScheme()
	if err := v1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions(t) {
		for _, kind := range []string{d.Spec.Names.Kind, d.Spec.Names.ListKind} {
			o, err := s.New(v1.SchemeGroupVersion().WithKind(kind))
			if err != nil {
				t.Errorf("make %s: %v", kind, err)
				continue
			}
			if o.DeepCopyObject() == nil {
				t.Errorf("copy %s: got nil", kind)
			}
		}
	}
}
