// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// annotationValidator warns about annotations of networks and TenantConfigs that look like Patchbay's
// and that Patchbay does not read. It rejects none.
type annotationValidator struct{}

// Handle implements admission.Handler.
func (annotationValidator) Handle(_ context.Context, r admission.Request) admission.Response {
	var obj metav1.PartialObjectMetadata
	if err := decodeJSON(r.Object.Raw, &obj); err != nil {
		return responseFor(fmt.Errorf("decode %s %s: %w", r.Kind.Kind, requestName(r), err))
	}
	known := network.ObjectAnnotations()
	if r.Kind.Kind == kindTenantConfig {
		known = []string{v1.TakeOverAnnotation}
	}
	return admission.Allowed("").WithWarnings(network.UnknownAnnotations(field.NewPath("metadata", "annotations"), obj.Annotations, known)...)
}
