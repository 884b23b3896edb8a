// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// access gives the agent of an accepted cluster its namespace and its rights, and revokes the
// rights when the cluster is not accepted any more.
type access struct {
	cached  client.Reader
	direct  client.Client
	revoked sync.Map // names of Clusters whose rights this process has revoked
}

// grant brings a cluster's namespace and rights up to date, also after another client has deleted
// or changed them. In a namespace that the hub did not make it grants none.
func (a *access) grant(ctx context.Context, c *v1alpha1.Cluster) error {
	ns, o, err := findNamespace(ctx, a.cached, a.direct, c)
	if err != nil {
		return err
	}
	if o == ownerOther {
		return a.revokeOnce(ctx, c.Name)
	}
	if ns, err = a.ensureNamespace(ctx, c, ns); err != nil {
		return err
	}
	if ns.DeletionTimestamp == nil { // else the hub makes it again when it is gone
		for _, desired := range rights(c, ns) {
			if err := a.ensure(ctx, desired); err != nil {
				return err
			}
		}
	}
	if !c.Spec.Accepted {
		return a.revokeOnce(ctx, c.Name)
	}
	a.revoked.Delete(c.Name)
	return nil
}

// ensureNamespace creates the namespace, or records this Cluster's UID on it. It never takes over
// a namespace that appears meanwhile.
func (a *access) ensureNamespace(ctx context.Context, c *v1alpha1.Cluster, ns *metav1.PartialObjectMetadata) (*metav1.PartialObjectMetadata, error) {
	if ns == nil {
		created := &corev1.Namespace{ObjectMeta: managed("", v1alpha1.ClusterNamespacePrefix+c.Name)}
		metav1.SetMetaDataAnnotation(&created.ObjectMeta, v1alpha1.ClusterUIDAnnotation, string(c.UID))
		if err := a.direct.Create(ctx, created); err != nil {
			return nil, fmt.Errorf("create the namespace of Cluster %s: %w", c.Name, err)
		}
		return &metav1.PartialObjectMetadata{ObjectMeta: created.ObjectMeta}, nil
	}
	next := ns.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.ClusterUIDAnnotation, string(c.UID))
	metav1.SetMetaDataLabel(&next.ObjectMeta, v1alpha1.ManagedLabel, "true")
	if equality.Semantic.DeepEqual(ns.ObjectMeta, next.ObjectMeta) {
		return ns, nil
	}
	if err := a.direct.Patch(ctx, next, client.MergeFromWithOptions(ns, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("record the UID of Cluster %s on its namespace: %w", c.Name, err)
	}
	return next, nil
}

// ensure creates or updates an object. It writes only where both the cache and the API server have
// something else.
func (a *access) ensure(ctx context.Context, desired client.Object) error {
	stored := newLike(desired)
	if _, ok := desired.(*corev1.ServiceAccount); ok { // the cache holds metadata of ServiceAccounts only
		stored = kinds.Metadata(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	}
	err := a.cached.Get(ctx, client.ObjectKeyFromObject(desired), stored)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read %T %s: %w", desired, desired.GetName(), err)
	}
	if err == nil && !setDesired(stored, desired) {
		return nil
	}
	stored = newLike(desired)
	_, err = controllerutil.CreateOrUpdate(ctx, a.direct, stored, func() error {
		setDesired(stored, desired)
		return nil
	})
	if apierrors.IsInvalid(err) { // roleRef of a binding is immutable
		if err = a.direct.Delete(ctx, newLike(desired)); client.IgnoreNotFound(err) == nil {
			err = a.direct.Create(ctx, desired)
		}
	}
	if err != nil {
		return fmt.Errorf("ensure %T %s: %w", desired, desired.GetName(), err)
	}
	return nil
}

// newLike returns an object of the same type, namespace and name, with nothing else set.
func newLike(o client.Object) client.Object {
	made, _ := reflect.TypeAssert[client.Object](reflect.New(reflect.TypeOf(o).Elem()))
	made.SetNamespace(o.GetNamespace())
	made.SetName(o.GetName())
	return made
}

// setDesired sets in o what the hub maintains, and reports whether that changes o. Labels and
// annotations of other clients stay.
func setDesired(o, desired client.Object) (changed bool) {
	before := o.DeepCopyObject()
	o.SetLabels(merged(o.GetLabels(), desired.GetLabels()))
	o.SetAnnotations(merged(o.GetAnnotations(), desired.GetAnnotations()))
	switch desired := desired.(type) {
	case *rbacv1.Role:
		if o, ok := o.(*rbacv1.Role); ok {
			o.Rules = desired.Rules
		}
	case *rbacv1.ClusterRole:
		if o, ok := o.(*rbacv1.ClusterRole); ok {
			o.Rules = desired.Rules
		}
	case *rbacv1.RoleBinding:
		if o, ok := o.(*rbacv1.RoleBinding); ok {
			o.Subjects, o.RoleRef = desired.Subjects, desired.RoleRef
		}
	case *rbacv1.ClusterRoleBinding:
		if o, ok := o.(*rbacv1.ClusterRoleBinding); ok {
			o.Subjects, o.RoleRef = desired.Subjects, desired.RoleRef
		}
	}
	return !equality.Semantic.DeepEqual(before, o)
}

// merged returns present with the desired entries set.
func merged(present, desired map[string]string) map[string]string {
	if len(desired) == 0 {
		return present
	}
	all := maps.Clone(desired)
	for key, value := range present {
		if _, ok := desired[key]; !ok {
			all[key] = value
		}
	}
	return all
}

// revokeOnce revokes the rights of a Cluster that exists, and again only when the cache shows that
// another client has restored a binding.
func (a *access) revokeOnce(ctx context.Context, cluster string) error {
	if _, done := a.revoked.Load(cluster); done {
		restored := false
		agent, joiners, clusterWide := bindings(cluster)
		for _, b := range []client.Object{agent, joiners, clusterWide} {
			err := a.cached.Get(ctx, client.ObjectKeyFromObject(b), b)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("read the rights of %s: %w", cluster, err)
			}
			restored = restored || err == nil
		}
		if !restored {
			return nil
		}
	}
	if err := a.revoke(ctx, cluster); err != nil {
		return err
	}
	a.revoked.Store(cluster, true)
	return nil
}

// revoke deletes the bindings of a cluster, also of one that is not in the inventory any more. In a
// namespace that the hub did not make, a binding of the same name may be another client's: a
// binding that gives this cluster no rights stays.
func (a *access) revoke(ctx context.Context, cluster string) error {
	a.revoked.Delete(cluster) // a Cluster that is created again starts without this record
	agent, joiners, clusterWide := bindings(cluster)
	for _, b := range []*rbacv1.RoleBinding{agent, joiners} {
		stored := &rbacv1.RoleBinding{}
		err := a.direct.Get(ctx, client.ObjectKeyFromObject(b), stored)
		gives := slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return slices.Contains(stored.Subjects, s) })
		if err == nil && gives {
			err = a.direct.Delete(ctx, stored, client.Preconditions{UID: &stored.UID})
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("revoke the rights of %s: %w", cluster, err)
		}
	}
	if err := a.direct.Delete(ctx, clusterWide); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("revoke the rights of %s: %w", cluster, err)
	}
	return nil
}
