// SPDX-License-Identifier: Apache-2.0

package works

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	danm "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Guard has the rules of the cluster's admin for the hub, from the agent's flags. They apply to all Works.
// AccessLabel on namespaces has the admin's rules for namespaces.
type Guard struct {
	// Namespace is the agent's own. The agent applies no object in it.
	Namespace string
	// Resources that the agent may apply, such as "deployments.apps". Default: ordinary workloads, and all
	// custom kinds that RBAC allows.
	Resources []string
	// PodSecurity is the minimum level of namespaces that the agent creates.
	PodSecurity v1alpha1.PodSecurityLevel
}

// refusalMessage returns why the agent may not apply an object; "" when it may.
func (g Guard) refusalMessage(t desiredObject) string {
	ns, resource := t.object.GetNamespace(), t.gvr.GroupResource()
	kinds := workloadResources(resource.Group)
	builtIn := !strings.Contains(resource.Group, ".") || strings.HasSuffix(resource.Group, ".k8s.io")
	listed := slices.Contains(g.Resources, resource.String())
	switch {
	case strings.HasPrefix(ns, "kube-"), ns != "" && ns == g.Namespace, ns == v1alpha1.SystemNamespace, ns == v1alpha1.SecretCopyNamespace:
		return fmt.Sprintf("%s: metadata.namespace: must not be namespace %s, in which the agent applies no objects", t, ns)
	case isForbiddenKind(resource):
		return fmt.Sprintf("%s: must not be of a kind that only the cluster's own admin manages", t)
	case len(g.Resources) > 0 && !listed:
		return fmt.Sprintf("%s: the cluster's admin must allow this kind (--allowed-resources)", t)
	case !listed && (kinds != nil || builtIn) && !slices.Contains(kinds, resource.Resource):
		return fmt.Sprintf("%s: the kind must be one of ordinary workloads, or the cluster's admin must allow it (--allowed-resources)", t)
	case resource.Group == "" && resource.Resource == "secrets" && isServiceAccountToken(t):
		return fmt.Sprintf("%s: type: must not be that of a ServiceAccount's token: the cluster would write the token of one of its own ServiceAccounts into the Secret", t)
	}
	return ""
}

// isForbiddenKind tells whether objects of a kind grant rights in the cluster, or change its control plane.
// The agent never applies them, not even if the kind is in Guard.Resources.
func isForbiddenKind(resource schema.GroupResource) bool {
	switch resource.Group {
	case "rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiregistration.k8s.io", "apiextensions.k8s.io",
		"certificates.k8s.io", "node.k8s.io", v1alpha1.GroupName:
		return true
	case "":
		return resource.Resource == "nodes" || resource.Resource == "namespaces"
	}
	return false
}

// isServiceAccountToken tells whether the cluster's controllers would write a ServiceAccount's token into a
// Secret.
func isServiceAccountToken(t desiredObject) bool {
	_, named := t.object.GetAnnotations()[corev1.ServiceAccountNameKey]
	return named || t.object.Object["type"] == string(corev1.SecretTypeServiceAccountToken)
}

// workloadResources returns the resources of ordinary workloads, of Kubernetes and of DANM, in a group; nil
// when it has custom kinds only.
func workloadResources(group string) []string {
	switch group {
	case "":
		return []string{"configmaps", "persistentvolumeclaims", "pods", "podtemplates", "replicationcontrollers", "secrets", "serviceaccounts", "services"}
	case "apps":
		return []string{"daemonsets", "deployments", "replicasets", "statefulsets"}
	case "autoscaling":
		return []string{"horizontalpodautoscalers"}
	case "batch":
		return []string{"cronjobs", "jobs"}
	case "networking.k8s.io":
		return []string{"ingresses", "networkpolicies"}
	case "policy":
		return []string{"poddisruptionbudgets"}
	case "resource.k8s.io":
		return []string{"resourceclaims", "resourceclaimtemplates"}
	case danm.GroupName:
		return []string{"clusternetworks", "danmnets", "tenantnetworks"}
	}
	return nil
}
