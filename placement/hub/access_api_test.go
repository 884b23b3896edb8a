// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package hub

import (
	"context"
	"errors"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Rights go with their Cluster, and come again with it.
func TestRightsGoWithTheCluster(t *testing.T) {
	b := newBench(t)
	const name = "rights"
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
	ns := v1alpha1.ClusterNamespacePrefix + name
	rights := map[client.ObjectKey]client.Object{
		{Namespace: ns, Name: agentRole}:          &rbacv1.RoleBinding{},
		{Namespace: ns, Name: joinRole}:           &rbacv1.RoleBinding{},
		{Name: v1alpha1.ClusterUserPrefix + name}: &rbacv1.ClusterRoleBinding{},
	}
	are := func(there bool) {
		t.Helper()
		for key, o := range rights {
			b.eventually(fmt.Sprintf("%T %s to be there: %v", o, key, there), func(ctx context.Context) error {
				err := b.client.Get(ctx, key, o)
				if (err == nil) != there || client.IgnoreNotFound(err) != nil {
					return errors.Join(errNotYet, err)
				}
				return nil
			})
		}
	}
	b.create(cluster.DeepCopy())
	are(true)
	if err := b.client.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	are(false)
	b.create(cluster.DeepCopy())
	are(true)
}
