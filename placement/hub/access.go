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

// agentRole is the name of an agent's Role in its namespace.
const agentRole = "agent"

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
	ns, user := v1alpha1.ClusterNamespacePrefix+c.Name, v1alpha1.ClusterUserPrefix+c.Name
	role := &rbacv1.Role{ObjectMeta: named(ns, agentRole)}
	joining := &rbacv1.Role{ObjectMeta: named(ns, joinRole)}
	clusterRole := &rbacv1.ClusterRole{ObjectMeta: named("", user)}
	inside, joiners, everywhere := bindings(c.Name)
	wanted := []client.Object{&corev1.Namespace{ObjectMeta: named("", ns)}, account(ns), role, joining, clusterRole}
	if c.Spec.Accepted {
		wanted = append(wanted, inside, joiners, everywhere)
	}
	for _, o := range wanted {
		_, err := controllerutil.CreateOrUpdate(ctx, a.direct, o, func() error {
			role.Rules, joining.Rules, clusterRole.Rules = inNamespace(), []rbacv1.PolicyRule{tokenRule()}, outside(c.Name)
			inside.Subjects, everywhere.Subjects, joiners.Subjects = agentOf(c.Name), agentOf(c.Name), joinersOf(c.Name)
			return nil
		})
		if err != nil {
			return fmt.Errorf("ensure %T %s: %w", o, o.GetName(), err)
		}
	}
	if !c.Spec.Accepted {
		if err := a.revoke(ctx, c.Name); err != nil {
			return err
		}
	}
	a.given.Store(c.Name, c.Spec.Accepted)
	return nil
}

// revoke takes a cluster's rights, also when it is not in the inventory any more.
func (a *access) revoke(ctx context.Context, cluster string) error {
	a.given.Delete(cluster) // one that is made again starts anew
	inside, joiners, everywhere := bindings(cluster)
	for _, o := range []client.Object{inside, joiners, everywhere} {
		if err := a.direct.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take the rights of %s: %w", cluster, err)
		}
	}
	return nil
}

// bindings are what gives rights: in its namespace to the agent and to whoever joins, and
// beside it.
func bindings(cluster string) (inside, joiners *rbacv1.RoleBinding, everywhere *rbacv1.ClusterRoleBinding) {
	ns, user := v1alpha1.ClusterNamespacePrefix+cluster, v1alpha1.ClusterUserPrefix+cluster
	return binding(ns, agentRole), binding(ns, joinRole), &rbacv1.ClusterRoleBinding{
		ObjectMeta: named("", user), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
	}
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
