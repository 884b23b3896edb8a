// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"maps"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// annotationValidator warns about annotations of networks and TenantConfigs that look like Patchbay's
// and that Patchbay does not read, unless they were there before. It rejects no request.
type annotationValidator struct{}

// Handle implements admission.Handler.
func (annotationValidator) Handle(_ context.Context, r admission.Request) admission.Response {
	var obj, old metav1.PartialObjectMetadata
	err := decodeJSON(r.Object.Raw, &obj)
	if err == nil && r.Operation == admissionv1.Update {
		err = decodeJSON(r.OldObject.Raw, &old)
	}
	if err != nil {
		return responseFor(fmt.Errorf("decode %s %s: %w", r.Kind.Kind, requestName(r), err))
	}
	maps.DeleteFunc(obj.Annotations, func(key, value string) bool {
		before, ok := old.Annotations[key]
		return ok && before == value
	})
	known := network.ObjectAnnotations()
	if r.Kind.Kind == kindTenantConfig {
		known = []string{v1.TakeOverAnnotation}
	}
	return admission.Allowed("").WithWarnings(network.UnknownAnnotations(field.NewPath("metadata", "annotations"), obj.Annotations, known)...)
}
