// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/tenant"
)

// tenantConfigs validates TenantConfigs. What is reserved stands in the object
// itself, so that a reservation made meanwhile makes the API server ask again.
type tenantConfigs struct {
	reader client.Reader
}

// Handle implements admission.Handler.
func (h *tenantConfigs) Handle(ctx context.Context, r admission.Request) admission.Response {
	var obj, old v1.TenantConfig
	for _, o := range []struct {
		raw  []byte
		into *v1.TenantConfig
	}{{r.Object.Raw, &obj}, {r.OldObject.Raw, &old}} {
		if len(o.raw) == 0 {
			continue
		}
		if err := decodeJSON(o.raw, o.into); err != nil {
			return answer(fmt.Errorf("decode TenantConfig %s: %w", r.Name, err))
		}
	}
	warning, err := h.check(ctx, r.Operation, &obj, &old)
	if err != nil {
		return answer(aboutConfig(r.Name, err))
	}
	if warning != "" {
		return admission.Allowed("").WithWarnings(warning)
	}
	return admission.Allowed("")
}

// check also warns. One whose reservations cannot be read is let in, so that it can be
// mended or deleted: nobody draws from it meanwhile.

func (h *tenantConfigs) check(ctx context.Context, op admissionv1.Operation, obj, old *v1.TenantConfig) (warning string, err error) {
	book, err := tenant.ParseBook(old.Status.Reservations)
	if err != nil {
		warning = fmt.Sprintf("status.reservations of TenantConfig %s cannot be read, so nobody checks that what is in use stays: %v", old.Name, err)
		book = tenant.NewBook()
	}
	if op == admissionv1.Delete {
		return warning, tenant.Deletable(old.Name, book)
	}
	model, err := network.FromTenantConfig(obj)
	if err != nil {
		return "", err
	}
	if err := tenant.Keeps(model, book); err != nil {
		return "", err
	}
	return warning, h.beside(ctx, model)
}

// beside checks that a TenantConfig can stand beside the others.
func (h *tenantConfigs) beside(ctx context.Context, model *network.Tenancy) error {
	var list v1.TenantConfigList
	if err := h.reader.List(ctx, &list); err != nil {
		return fmt.Errorf("list TenantConfigs: %w", err)
	}
	for i := range list.Items {
		other, err := network.FromTenantConfig(&list.Items[i])
		if err != nil || other.Name == model.Name {
			continue // an object that is older than a rule is in nobody's way
		}
		if err := tenant.Overlap(model, other); err != nil {
			return err
		}
	}
	return nil
}

// aboutConfig says which TenantConfig an error is about.
func aboutConfig(name string, err error) error {
	return about(network.Ref{Kind: "TenantConfig", Name: name}, err)
}
