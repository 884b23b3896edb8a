// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/internal/reserve"
)

// tenantConfigStore keeps reservations in the status of TenantConfigs.
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
