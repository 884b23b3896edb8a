// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// access gives an accepted cluster's agent its namespace and its rights, and takes the
// rights when it is not accepted any more.
type access struct {
	direct client.Client
	given  sync.Map // of a Cluster's name: whether it has its rights
}

// grant brings a cluster's rights up to date, once for each acceptance or refusal, and
// at the start of the hub.
func (a *access) grant(ctx context.Context, c *v1alpha1.Cluster) error {
	if had, ok := a.given.Load(c.Name); ok && had == c.Spec.Accepted {
		return nil
	}
	for _, o := range []client.Object{a.namespace(c), a.account(c), a.role(c), a.joinRole(c), a.clusterRole(c)} {
		if err := a.ensure(ctx, o); err != nil {
			return err
		}
	}
	for _, o := range []client.Object{a.binding(c), a.joinBinding(c), a.clusterBinding(c)} {
		if c.Spec.Accepted {
			if err := a.ensure(ctx, o); err != nil {
				return err
			}
		} else if err := client.IgnoreNotFound(a.direct.Delete(ctx, o)); err != nil {
			return fmt.Errorf("take the rights of %s: %w", c.Name, err)
		}
	}
	a.given.Store(c.Name, c.Spec.Accepted)
	return nil
}

// ensure creates an object, or gives it the rules or subjects that it is to have.
func (a *access) ensure(ctx context.Context, want client.Object) error {
	have, ok := want.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy %T: not an object", want)
	}
	_, err := controllerutil.CreateOrUpdate(ctx, a.direct, have, func() error {
		switch w := want.(type) {
		case *rbacv1.Role:
			if h, ok := have.(*rbacv1.Role); ok {
				h.Rules = w.Rules
			}
		case *rbacv1.ClusterRole:
			if h, ok := have.(*rbacv1.ClusterRole); ok {
				h.Rules = w.Rules
			}
		case *rbacv1.RoleBinding:
			if h, ok := have.(*rbacv1.RoleBinding); ok {
				h.RoleRef, h.Subjects = w.RoleRef, w.Subjects
			}
		case *rbacv1.ClusterRoleBinding:
			if h, ok := have.(*rbacv1.ClusterRoleBinding); ok {
				h.RoleRef, h.Subjects = w.RoleRef, w.Subjects
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("ensure %T %s: %w", want, want.GetName(), err)
	}
	return nil
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.ManagedLabel: "true"}}
}

func (a *access) namespace(c *v1alpha1.Cluster) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: named("", v1alpha1.ClusterNamespacePrefix+c.Name)}
}

// role is what the agent may do in its namespace.
func (a *access) role(c *v1alpha1.Cluster) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: named(v1alpha1.ClusterNamespacePrefix+c.Name, agentRole),
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"works"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"works/status"}, Verbs: []string{"get", "update", "patch"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
			tokenRule(),
		},
	}
}

// clusterRole is what it may do beside: say how its cluster is, and know the hub.
func (a *access) clusterRole(c *v1alpha1.Cluster) *rbacv1.ClusterRole {
	own := []string{c.Name}
	return &rbacv1.ClusterRole{
		ObjectMeta: named("", v1alpha1.ClusterUserPrefix+c.Name),
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"clusters"}, ResourceNames: own, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"clusters/status"}, ResourceNames: own, Verbs: []string{"get", "update", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{metav1.NamespaceSystem}, Verbs: []string{"get"}},
			{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get", "list", "watch"}},
		},
	}
}

// agentRole is the name of an agent's Role in its namespace.
const agentRole = "agent"

func (a *access) binding(c *v1alpha1.Cluster) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: named(v1alpha1.ClusterNamespacePrefix+c.Name, agentRole),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: agentRole},
		Subjects:   agentOf(c),
	}
}

func (a *access) clusterBinding(c *v1alpha1.Cluster) *rbacv1.ClusterRoleBinding {
	name := v1alpha1.ClusterUserPrefix + c.Name
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: named("", name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   agentOf(c),
	}
}
