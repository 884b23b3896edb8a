// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/tenant/reserve"
)

// store keeps reservations in the status of TenantConfigs.
type store struct{ c client.Client }

var _ reserve.Store = store{}

// List implements reserve.Store.
func (s store) List(ctx context.Context) ([]*v1.TenantConfig, error) {
	var list v1.TenantConfigList
	if err := s.c.List(ctx, &list); err != nil {
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
func (s store) Update(ctx context.Context, c *v1.TenantConfig) (*v1.TenantConfig, error) {
	err := s.c.Status().Update(ctx, c)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %w", reserve.ErrConflict, err)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}
