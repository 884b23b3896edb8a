// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// owner tells who made a cluster's namespace.
type owner int

const (
	ownerNone  owner = iota // there is no namespace
	ownerHub                // the hub made it
	ownerOther              // another client made it
)

// findNamespace returns a cluster's namespace and its owner. A user who may create namespaces can
// create one with the name and the labels before the Cluster exists. With an agent's rights in it
// that user could read the Secrets that are placed there.
func findNamespace(ctx context.Context, cached, direct client.Reader, c *v1alpha1.Cluster) (ns *metav1.PartialObjectMetadata, o owner, err error) {
	// Only the answer that the hub is the owner is trusted when it comes from the cache.
	for _, r := range []client.Reader{cached, direct} {
		if ns, o, err = readNamespace(ctx, r, c); err != nil || o == ownerHub {
			break
		}
	}
	return ns, o, err
}

// readNamespace asks one reader. The hub is the owner when the namespace names this Cluster's UID,
// which no user knew before the Cluster existed, or when the agent's ClusterRole, which only admins
// and the hub write, names the UID of the namespace. Earlier versions of the hub recorded neither:
// where they left a ClusterRole, the hub's label on the namespace counts.
func readNamespace(ctx context.Context, r client.Reader, c *v1alpha1.Cluster) (*metav1.PartialObjectMetadata, owner, error) {
	ns := kinds.NamespaceMetadata()
	err := r.Get(ctx, client.ObjectKey{Name: v1alpha1.ClusterNamespacePrefix + c.Name}, ns)
	switch {
	case apierrors.IsNotFound(err):
		return nil, ownerNone, nil
	case err != nil:
		return nil, ownerNone, fmt.Errorf("read the namespace of Cluster %s: %w", c.Name, err)
	case ns.Annotations[v1alpha1.ClusterUIDAnnotation] == string(c.UID):
		return ns, ownerHub, nil
	}
	role := &rbacv1.ClusterRole{}
	err = r.Get(ctx, client.ObjectKey{Name: v1alpha1.ClusterUserPrefix + c.Name}, role)
	if client.IgnoreNotFound(err) != nil {
		return nil, ownerNone, fmt.Errorf("read the ClusterRole of Cluster %s: %w", c.Name, err)
	}
	recorded := role.Annotations[v1alpha1.NamespaceUIDAnnotation]
	byEarlierHub := err == nil && recorded == "" && ns.Labels[v1alpha1.ManagedLabel] == "true"
	if byEarlierHub || recorded == string(ns.UID) {
		return ns, ownerHub, nil
	}
	return ns, ownerOther, nil
}
