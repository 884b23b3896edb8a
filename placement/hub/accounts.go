// SPDX-License-Identifier: Apache-2.0

package hub

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// joinRole is the name of the Role of join tokens in a cluster's namespace.
const joinRole = "join"

// account is what an agent is whose certificate would not get through: its tokens are
// short-lived.
func (a *access) account(c *v1alpha1.Cluster) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: named(v1alpha1.ClusterNamespacePrefix+c.Name, v1alpha1.AgentAccount)}
}

// tokenRule lets somebody get tokens of the agent's account in the namespace.
func tokenRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{v1alpha1.AgentAccount}, Verbs: []string{"create"},
	}
}

func (a *access) joinRole(c *v1alpha1.Cluster) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: named(v1alpha1.ClusterNamespacePrefix+c.Name, joinRole), Rules: []rbacv1.PolicyRule{tokenRule()}}
}

// joinBinding lets who has the cluster's join token get the first of these tokens.
func (a *access) joinBinding(c *v1alpha1.Cluster) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: named(v1alpha1.ClusterNamespacePrefix+c.Name, joinRole),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: joinRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: v1alpha1.BootstrapGroupPrefix + c.Name}},
	}
}

// agentOf is an agent with its certificate, and with a token.
func agentOf(c *v1alpha1.Cluster) []rbacv1.Subject {
	return []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: v1alpha1.ClusterUserPrefix + c.Name},
		{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.ClusterNamespacePrefix + c.Name, Name: v1alpha1.AgentAccount},
	}
}
