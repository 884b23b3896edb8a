// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// joinRole is the name of the Role of join tokens in a cluster's namespace.
const joinRole = "join"

// account is what an agent is whose certificate would not get through: its tokens are
// short-lived.
func account(namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: named(namespace, v1alpha1.AgentAccount)}
}

// tokenRule lets somebody get tokens of the agent's account in the namespace: the agent,
// and whoever has the cluster's join token.
func tokenRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{v1alpha1.AgentAccount}, Verbs: []string{"create"},
	}
}

// binding is of a Role and has its name.
func binding(namespace, role string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: named(namespace, role), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
	}
}

// agentOf is an agent with its certificate, and with a token.
func agentOf(cluster string) []rbacv1.Subject {
	return []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: v1alpha1.ClusterUserPrefix + cluster},
		{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.ClusterNamespacePrefix + cluster, Name: v1alpha1.AgentAccount},
	}
}

// joinersOf are who has the cluster's join token.
func joinersOf(cluster string) []rbacv1.Subject {
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: v1alpha1.BootstrapGroupPrefix + cluster}}
}
