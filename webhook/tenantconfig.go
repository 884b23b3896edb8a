// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
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
		if err := json.Unmarshal(o.raw, o.into); err != nil {
			return answer(fmt.Errorf("decode TenantConfig %s: %w", r.Name, err))
		}
	}
	err := h.check(ctx, r.Operation, &obj, &old)
	if err != nil {
		err = aboutConfig(r.Name, err)
	}
	return answer(err)
}

func (h *tenantConfigs) check(ctx context.Context, op admissionv1.Operation, obj, old *v1.TenantConfig) error {
	book, err := tenant.ParseBook(old.Status.Reservations)
	if err != nil {
		return fmt.Errorf("read status.reservations of TenantConfig %s: %w", old.Name, err)
	}
	if op == admissionv1.Delete {
		return tenant.Deletable(old.Name, book)
	}
	model, err := network.FromTenantConfig(obj)
	if err != nil {
		return err
	}
	if err := tenant.Keeps(model, book); err != nil {
		return err
	}
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
