// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/internal/reserve"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

const kindTenantConfig = "TenantConfig"

// tenantConfigValidator validates TenantConfigs. Reservations are in the object itself, so that a
// concurrent reservation makes the API server call admission again.
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

// validate also returns a warning. It allows a change of an object whose reservations cannot be
// read, so that it can be corrected or deleted; nothing is assigned from it meanwhile.
func (h *tenantConfigValidator) validate(ctx context.Context, op admissionv1.Operation, obj, old *v1.TenantConfig) (warning string, err error) {
	reservations, err := tenant.ParseReservations(old.Status.Reservations)
	if err != nil {
		warning = fmt.Sprintf("status.reservations of TenantConfig %s cannot be read, so this change is not checked against what tenants use: %v", old.Name, err)
		reservations = tenant.NewReservations()
	}
	if op == admissionv1.Delete {
		return warning, tenant.CheckDelete(old.Name, reservations)
	}
	model, err := network.FromTenantConfig(obj)
	if err != nil {
		return "", err
	}
	if err := tenant.CheckUpdate(model, reservations); err != nil {
		return "", err
	}
	return warning, h.validateOverlap(ctx, model)
}

// validateOverlap checks that a TenantConfig does not overlap the others.
func (h *tenantConfigValidator) validateOverlap(ctx context.Context, model *network.TenantConfig) error {
	var list v1.TenantConfigList
	if err := h.reader.List(ctx, &list); err != nil {
		return fmt.Errorf("list TenantConfigs: %w", err)
	}
	for i := range list.Items {
		other, err := network.FromTenantConfig(&list.Items[i])
		if err != nil || other.Name == model.Name {
			continue // nothing is assigned from an invalid TenantConfig
		}
		if err := tenant.CheckOverlap(model, other); err != nil {
			return err
		}
	}
	return nil
}

// withTenantConfigSubject adds the TenantConfig's name to an error without one.
func withTenantConfigSubject(name string, err error) error {
	return withSubject(network.Ref{Kind: kindTenantConfig, Name: name}, err)
}

// tenantConfigStore stores reservations in the status of TenantConfigs.
type tenantConfigStore struct{ client client.Client }

var _ reserve.Store = tenantConfigStore{}

// List implements reserve.Store.
func (s tenantConfigStore) List(ctx context.Context) ([]*v1.TenantConfig, error) {
	var list v1.TenantConfigList
	if err := s.client.List(ctx, &list); err != nil {
		return nil, err
	}
	configs := make([]*v1.TenantConfig, len(list.Items))
	for i := range list.Items {
		list.Items[i].ManagedFields = nil
		configs[i] = &list.Items[i]
	}
	return configs, nil
}

// Update implements reserve.Store: a PUT of the status with UID and resourceVersion.
func (s tenantConfigStore) Update(ctx context.Context, c *v1.TenantConfig) (*v1.TenantConfig, error) {
	err := s.client.Status().Update(ctx, c)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %w", reserve.ErrConflict, err)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}
