// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

// tenantConfigValidator validates TenantConfigs. What is reserved stands in the object
// itself, so that a reservation made meanwhile makes the API server ask again.
type tenantConfigValidator struct {
	reader client.Reader
}

// Handle implements admission.Handler.
func (h *tenantConfigValidator) Handle(ctx context.Context, r admission.Request) admission.Response {
	var obj, old v1.TenantConfig
	for _, o := range []struct {
		raw  []byte
		into *v1.TenantConfig
	}{{r.Object.Raw, &obj}, {r.OldObject.Raw, &old}} {
		if len(o.raw) == 0 {
			continue
		}
		if err := decodeJSON(o.raw, o.into); err != nil {
			return responseFor(fmt.Errorf("decode TenantConfig %s: %w", r.Name, err))
		}
	}
	warning, err := h.validate(ctx, r.Operation, &obj, &old)
	if err != nil {
		return responseFor(withTenantConfigSubject(r.Name, err))
	}
	if warning != "" {
		return admission.Allowed("").WithWarnings(warning)
	}
	return admission.Allowed("")
}

// check also warns. One whose reservations cannot be read is let in, so that it can be
// mended or deleted: nobody draws from it meanwhile.

func (h *tenantConfigValidator) validate(ctx context.Context, op admissionv1.Operation, obj, old *v1.TenantConfig) (warning string, err error) {
	book, err := tenant.ParseReservations(old.Status.Reservations)
	if err != nil {
		warning = fmt.Sprintf("status.reservations of TenantConfig %s cannot be read, so nobody checks that what is in use stays: %v", old.Name, err)
		book = tenant.NewReservations()
	}
	if op == admissionv1.Delete {
		return warning, tenant.CheckDelete(old.Name, book)
	}
	model, err := network.FromTenantConfig(obj)
	if err != nil {
		return "", err
	}
	if err := tenant.CheckUpdate(model, book); err != nil {
		return "", err
	}
	return warning, h.validateOverlap(ctx, model)
}

// validateOverlap checks that a TenantConfig can stand beside the others.
func (h *tenantConfigValidator) validateOverlap(ctx context.Context, model *network.TenantConfig) error {
	var list v1.TenantConfigList
	if err := h.reader.List(ctx, &list); err != nil {
		return fmt.Errorf("list TenantConfigs: %w", err)
	}
	for i := range list.Items {
		other, err := network.FromTenantConfig(&list.Items[i])
		if err != nil || other.Name == model.Name {
			continue // an object that is older than a rule is in nobody's way
		}
		if err := tenant.CheckOverlap(model, other); err != nil {
			return err
		}
	}
	return nil
}

// withTenantConfigSubject says which TenantConfig an error is about.
func withTenantConfigSubject(name string, err error) error {
	return withSubject(network.Ref{Kind: "TenantConfig", Name: name}, err)
}
