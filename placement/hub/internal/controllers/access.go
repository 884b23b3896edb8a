// SPDX-License-Identifier: Apache-2.0

package controllers

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
)

// agentRole is the name of an agent's Role in its namespace.
const agentRole = "agent"

// access gives an accepted cluster's agent its namespace and its rights, and takes the
// rights when it is not accepted any more.
type access struct {
	cached  client.Reader
	direct  client.Client
	revoked sync.Map // names of Clusters whose rights were taken since the start of the hub
}

// owner says whose a cluster's namespace is.
type owner int

const (
	ownerNone  owner = iota // there is no namespace
	ownerHub                // the hub made it
	ownerOther              // somebody else made it
)

// namespace finds a cluster's namespace, and whose it is. Whoever may create namespaces may give
// one its name and labels, before the cluster is in the inventory: with rights in it they would
// read the Secrets that are placed there.
func (a *access) namespace(ctx context.Context, c *v1alpha1.Cluster) (ns *metav1.PartialObjectMetadata, o owner, err error) {
	// Bad news of the cache may be old.
	for _, r := range []client.Reader{a.cached, a.direct} {
		if ns, o, err = namespaceIn(ctx, r, c); err != nil || o == ownerHub {
			break
		}
	}
	return ns, o, err
}

// namespaceIn asks one reader. The namespace is the hub's when it names this Cluster's UID, which
// nobody knew before there was the Cluster; or when its own UID is in the agent's ClusterRole,
// which only admins write besides the hub. Earlier versions of the hub did not note either: where
// they left a ClusterRole, their label on the namespace counts.
func namespaceIn(ctx context.Context, r client.Reader, c *v1alpha1.Cluster) (*metav1.PartialObjectMetadata, owner, error) {
	ns := metadata(namespaceKind())
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
	earlier := err == nil && recorded == "" && ns.Labels[v1alpha1.ManagedLabel] == "true"
	if earlier || recorded == string(ns.UID) {
		return ns, ownerHub, nil
	}
	return ns, ownerOther, nil
}

// grant brings a cluster's namespace and rights up to date, also when somebody has deleted or
// changed them. In somebody else's namespace there are none.
func (a *access) grant(ctx context.Context, c *v1alpha1.Cluster) error {
	ns, o, err := a.namespace(ctx, c)
	if err != nil {
		return err
	}
	if o == ownerOther {
		return a.withdraw(ctx, c.Name)
	}
	if ns, err = a.own(ctx, c, ns); err != nil {
		return err
	}
	if ns.DeletionTimestamp == nil { // else it is made again when it is gone
		for _, want := range rights(c, ns) {
			if err := a.ensure(ctx, want); err != nil {
				return err
			}
		}
	}
	if !c.Spec.Accepted {
		return a.withdraw(ctx, c.Name)
	}
	a.revoked.Delete(c.Name)
	return nil
}

// own creates the namespace, or notes on it that it is this Cluster's. It never takes over one that
// has come up meanwhile.
func (a *access) own(ctx context.Context, c *v1alpha1.Cluster, ns *metav1.PartialObjectMetadata) (*metav1.PartialObjectMetadata, error) {
	if ns == nil {
		made := &corev1.Namespace{ObjectMeta: named("", v1alpha1.ClusterNamespacePrefix+c.Name)}
		metav1.SetMetaDataAnnotation(&made.ObjectMeta, v1alpha1.ClusterUIDAnnotation, string(c.UID))
		if err := a.direct.Create(ctx, made); err != nil {
			return nil, fmt.Errorf("create the namespace of Cluster %s: %w", c.Name, err)
		}
		return &metav1.PartialObjectMetadata{ObjectMeta: made.ObjectMeta}, nil
	}
	next := ns.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.ClusterUIDAnnotation, string(c.UID))
	metav1.SetMetaDataLabel(&next.ObjectMeta, v1alpha1.ManagedLabel, "true")
	if equality.Semantic.DeepEqual(ns.ObjectMeta, next.ObjectMeta) {
		return ns, nil
	}
	if err := a.direct.Patch(ctx, next, client.MergeFromWithOptions(ns, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("note Cluster %s on its namespace: %w", c.Name, err)
	}
	return next, nil
}

// rights are what the hub makes for a cluster beside its namespace.
func rights(c *v1alpha1.Cluster, namespace metav1.Object) []client.Object {
	ns := namespace.GetName()
	everything := &rbacv1.ClusterRole{ObjectMeta: named("", v1alpha1.ClusterUserPrefix+c.Name), Rules: outside(c.Name)}
	metav1.SetMetaDataAnnotation(&everything.ObjectMeta, v1alpha1.NamespaceUIDAnnotation, string(namespace.GetUID()))
	wanted := []client.Object{
		everything, account(ns),
		&rbacv1.Role{ObjectMeta: named(ns, agentRole), Rules: inNamespace()},
		&rbacv1.Role{ObjectMeta: named(ns, joinRole), Rules: []rbacv1.PolicyRule{tokenRule()}},
	}
	if c.Spec.Accepted {
		inside, joiners, everywhere := bindings(c.Name)
		wanted = append(wanted, inside, joiners, everywhere)
	}
	return wanted
}

// ensure makes an object as it is wanted. It writes only where the cache and the API server have
// something else.
func (a *access) ensure(ctx context.Context, want client.Object) error {
	o := bare(want)
	if _, ok := want.(*corev1.ServiceAccount); ok { // of which the cache has the metadata of all
		m := metadata(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
		o = m
	}
	err := a.cached.Get(ctx, client.ObjectKeyFromObject(want), o)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("look for %T %s: %w", want, want.GetName(), err)
	}
	if err == nil && !impose(o, want) {
		return nil
	}
	o = bare(want)
	_, err = controllerutil.CreateOrUpdate(ctx, a.direct, o, func() error {
		impose(o, want)
		return nil
	})
	if apierrors.IsInvalid(err) { // the role of a binding cannot be changed
		if err = a.direct.Delete(ctx, bare(want)); client.IgnoreNotFound(err) == nil {
			err = a.direct.Create(ctx, want)
		}
	}
	if err != nil {
		return fmt.Errorf("ensure %T %s: %w", want, want.GetName(), err)
	}
	return nil
}

// bare is an object that has only kind and name.
func bare(o client.Object) client.Object {
	made, _ := reflect.TypeAssert[client.Object](reflect.New(reflect.TypeOf(o).Elem()))
	made.SetNamespace(o.GetNamespace())
	made.SetName(o.GetName())
	return made
}

// impose sets what is wanted of an object, and says whether that changes it. Labels and annotations
// of others stay.
func impose(o, want client.Object) (changed bool) {
	before := o.DeepCopyObject()
	o.SetLabels(merged(o.GetLabels(), want.GetLabels()))
	o.SetAnnotations(merged(o.GetAnnotations(), want.GetAnnotations()))
	switch want := want.(type) {
	case *rbacv1.Role:
		if o, ok := o.(*rbacv1.Role); ok {
			o.Rules = want.Rules
		}
	case *rbacv1.ClusterRole:
		if o, ok := o.(*rbacv1.ClusterRole); ok {
			o.Rules = want.Rules
		}
	case *rbacv1.RoleBinding:
		if o, ok := o.(*rbacv1.RoleBinding); ok {
			o.Subjects, o.RoleRef = want.Subjects, want.RoleRef
		}
	case *rbacv1.ClusterRoleBinding:
		if o, ok := o.(*rbacv1.ClusterRoleBinding); ok {
			o.Subjects, o.RoleRef = want.Subjects, want.RoleRef
		}
	}
	return !equality.Semantic.DeepEqual(before, o)
}

func merged(has, wanted map[string]string) map[string]string {
	if len(wanted) == 0 {
		return has
	}
	all := maps.Clone(wanted)
	for key, value := range has {
		if _, ok := wanted[key]; !ok {
			all[key] = value
		}
	}
	return all
}

// withdraw takes the rights of a cluster that is in the inventory, once, and again where somebody
// gives them.
func (a *access) withdraw(ctx context.Context, cluster string) error {
	if _, done := a.revoked.Load(cluster); done {
		given := false
		inside, joiners, everywhere := bindings(cluster)
		for _, b := range []client.Object{inside, joiners, everywhere} {
			err := a.cached.Get(ctx, client.ObjectKeyFromObject(b), b)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("look for the rights of %s: %w", cluster, err)
			}
			given = given || err == nil
		}
		if !given {
			return nil
		}
	}
	if err := a.revoke(ctx, cluster); err != nil {
		return err
	}
	a.revoked.Store(cluster, true)
	return nil
}

// revoke takes a cluster's rights, also when it is not in the inventory any more. In a namespace
// that is somebody else's the names may be theirs: what gives this cluster no rights stays.
func (a *access) revoke(ctx context.Context, cluster string) error {
	a.revoked.Delete(cluster) // one that is made again starts anew
	inside, joiners, everywhere := bindings(cluster)
	for _, b := range []*rbacv1.RoleBinding{inside, joiners} {
		stored := &rbacv1.RoleBinding{}
		err := a.direct.Get(ctx, client.ObjectKeyFromObject(b), stored)
		gives := slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return slices.Contains(stored.Subjects, s) })
		if err == nil && gives {
			err = a.direct.Delete(ctx, stored, client.Preconditions{UID: &stored.UID})
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take the rights of %s: %w", cluster, err)
		}
	}
	if err := a.direct.Delete(ctx, everywhere); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take the rights of %s: %w", cluster, err)
	}
	return nil
}

// bindings are what gives rights: in its namespace to the agent and to whoever joins, and
// beside it.
func bindings(cluster string) (inside, joiners *rbacv1.RoleBinding, everywhere *rbacv1.ClusterRoleBinding) {
	ns, user := v1alpha1.ClusterNamespacePrefix+cluster, v1alpha1.ClusterUserPrefix+cluster
	inside, joiners = binding(ns, agentRole), binding(ns, joinRole)
	everywhere = &rbacv1.ClusterRoleBinding{
		ObjectMeta: named("", user), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
	}
	inside.Subjects, everywhere.Subjects, joiners.Subjects = agentOf(cluster), agentOf(cluster), joinersOf(cluster)
	return inside, joiners, everywhere
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.ManagedLabel: "true"}}
}

// inNamespace is what an agent may do in its namespace.
func inNamespace() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"works"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"works/status"}, Verbs: []string{"get", "update", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}, // those beside its Works
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		tokenRule(),
	}
}

// outside is what it may do beside: say how its cluster is, and know the hub.
func outside(cluster string) []rbacv1.PolicyRule {
	own := []string{cluster}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"clusters"}, ResourceNames: own, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"clusters/status"}, ResourceNames: own, Verbs: []string{"get", "update", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{metav1.NamespaceSystem}, Verbs: []string{"get"}},
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get", "list", "watch"}},
	}
}
