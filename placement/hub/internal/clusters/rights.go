// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

const (
	// AgentRole is the name of the Role and RoleBinding of a cluster's agent in its namespace.
	AgentRole = "agent"
	// JoinRole is the name of the Role and RoleBinding of join tokens in a cluster's namespace.
	JoinRole = "join"
)

// rights returns the objects that the hub makes for a cluster besides its namespace. Bindings are
// for accepted clusters only.
func rights(c *v1alpha1.Cluster, namespace metav1.Object) []client.Object {
	ns := namespace.GetName()
	clusterRole := &rbacv1.ClusterRole{ObjectMeta: managed("", v1alpha1.ClusterUserPrefix+c.Name), Rules: clusterRules(c.Name)}
	metav1.SetMetaDataAnnotation(&clusterRole.ObjectMeta, v1alpha1.NamespaceUIDAnnotation, string(namespace.GetUID()))
	objects := []client.Object{
		clusterRole,
		// An agent whose certificate does not get through a load balancer uses short-lived tokens.
		&corev1.ServiceAccount{ObjectMeta: managed(ns, v1alpha1.AgentAccount)},
		&rbacv1.Role{ObjectMeta: managed(ns, AgentRole), Rules: namespaceRules()},
		&rbacv1.Role{ObjectMeta: managed(ns, JoinRole), Rules: []rbacv1.PolicyRule{tokenRule()}},
	}
	if c.Spec.Accepted {
		agent, joiners, clusterWide := bindings(c.Name)
		objects = append(objects, agent, joiners, clusterWide)
	}
	return objects
}

// bindings returns the RoleBindings of the agent and of join tokens in the cluster's namespace, and
// the agent's ClusterRoleBinding.
func bindings(cluster string) (agent, joiners *rbacv1.RoleBinding, clusterWide *rbacv1.ClusterRoleBinding) {
	ns, user := v1alpha1.ClusterNamespacePrefix+cluster, v1alpha1.ClusterUserPrefix+cluster
	subjects := []rbacv1.Subject{ // the agent with its certificate, and with a token
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user},
		{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: v1alpha1.AgentAccount},
	}
	agent = &rbacv1.RoleBinding{
		ObjectMeta: managed(ns, AgentRole), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: AgentRole},
	}
	joiners = &rbacv1.RoleBinding{
		ObjectMeta: managed(ns, JoinRole),
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: v1alpha1.BootstrapGroupPrefix + cluster}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: JoinRole},
	}
	clusterWide = &rbacv1.ClusterRoleBinding{
		ObjectMeta: managed("", user), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
	}
	return agent, joiners, clusterWide
}

// managed returns the metadata of an object that the hub maintains.
func managed(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.ManagedLabel: "true"}}
}

// namespaceRules are the agent's rights in its namespace.
func namespaceRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"works"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"works/status"}, Verbs: []string{"get", "update", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}, // those beside its Works
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		tokenRule(),
	}
}

// tokenRule lets the agent, and holders of the cluster's join token, get tokens of the agent's
// ServiceAccount.
func tokenRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{v1alpha1.AgentAccount}, Verbs: []string{"create"},
	}
}

// clusterRules are the agent's rights outside its namespace: it reports its Cluster's status, reads
// the hub's UID, renews its certificate, and opens the connection for debug requests.
func clusterRules(cluster string) []rbacv1.PolicyRule {
	own := []string{cluster}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"clusters"}, ResourceNames: own, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"clusters/status"}, ResourceNames: own, Verbs: []string{"get", "update", "patch"}},
		{APIGroups: []string{v1alpha1.DebugGroup}, Resources: []string{"clusters/attach"}, ResourceNames: own, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{metav1.NamespaceSystem}, Verbs: []string{"get"}},
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get", "list", "watch"}},
	}
}
