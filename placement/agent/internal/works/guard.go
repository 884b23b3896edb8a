// SPDX-License-Identifier: Apache-2.0

package works

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	danm "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Guard is what the cluster's admin says of the hub, whatever Works say: the agent's flags.
// Which namespaces the hub may write in they say by the label AccessLabel.
type Guard struct {
	// Namespace is the agent's own; no object is written in it.
	Namespace string
	// Resources, such as "deployments.apps", that may be written; empty: ordinary
	// workloads, and all custom kinds that RBAC allows.
	Resources []string
	// PodSecurity is the least level that namespaces enforce which the agent makes.
	PodSecurity v1alpha1.PodSecurityLevel
}

// forbiddenGroups have kinds that give rights in the cluster, or reach into its control plane:
// never written, not even when they are in Guard.Resources.
var forbiddenGroups = []string{
	"rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiregistration.k8s.io", "apiextensions.k8s.io",
	"certificates.k8s.io", "node.k8s.io", v1alpha1.GroupName,
}

// workloadResources are the kinds of Kubernetes, and of ours, that workloads are made of. Of groups
// that are not here, all kinds are custom ones.
var workloadResources = map[string][]string{
	"": {
		"configmaps", "persistentvolumeclaims", "pods", "podtemplates", "replicationcontrollers", "secrets", "serviceaccounts", "services",
	},
	"apps":              {"daemonsets", "deployments", "replicasets", "statefulsets"},
	"autoscaling":       {"horizontalpodautoscalers"},
	"batch":             {"cronjobs", "jobs"},
	"networking.k8s.io": {"ingresses", "networkpolicies"},
	"policy":            {"poddisruptionbudgets"},
	"resource.k8s.io":   {"resourceclaims", "resourceclaimtemplates"},
	danm.GroupName:      {"clusternetworks", "danmnets", "tenantnetworks"},
}

// refusalMessage says why a target is not written; "" when it may be.
func (g Guard) refusalMessage(t desiredObject) string {
	ns, resource := t.object.GetNamespace(), t.gvr.GroupResource()
	kinds, known := workloadResources[resource.Group]
	builtIn := !strings.Contains(resource.Group, ".") || strings.HasSuffix(resource.Group, ".k8s.io")
	listed := slices.Contains(g.Resources, resource.String())
	switch {
	case strings.HasPrefix(ns, "kube-"), ns != "" && ns == g.Namespace, ns == v1alpha1.SystemNamespace, ns == v1alpha1.SecretCopyNamespace:
		return fmt.Sprintf("%s: metadata.namespace: the agent writes nothing in namespace %s, whatever its labels", t, ns)
	case slices.Contains(forbiddenGroups, resource.Group), resource.Group == "" && slices.Contains([]string{"nodes", "namespaces"}, resource.Resource):
		return fmt.Sprintf("%s: objects of this kind belong to the cluster's own admin", t)
	case len(g.Resources) > 0 && !listed:
		return fmt.Sprintf("%s: the cluster's admin does not allow this kind (--allow)", t)
	case !listed && (known || builtIn) && !slices.Contains(kinds, resource.Resource):
		return fmt.Sprintf("%s: this is no kind of ordinary workloads; the cluster's admin may allow it (--allow)", t)
	case resource.Group == "" && resource.Resource == "secrets" && isServiceAccountToken(t):
		return fmt.Sprintf("%s: type: a Secret from the hub must not hold a ServiceAccount's token: this cluster would write the token of its own account into it", t)
	}
	return ""
}

// isServiceAccountToken tells whether a cluster's controllers take a Secret for a ServiceAccount's token.
func isServiceAccountToken(t desiredObject) bool {
	_, named := t.object.GetAnnotations()[corev1.ServiceAccountNameKey]
	return named || t.object.Object["type"] == string(corev1.SecretTypeServiceAccountToken)
}

// accountReference is a ServiceAccount that a manifest names.
type accountReference struct {
	field, name string
}

// accountReferences returns the ServiceAccounts other than default that Pods of an object would run
// as. In custom kinds, whose Pod templates may be anywhere, all fields of these names count.
func accountReferences(t desiredObject) []accountReference {
	switch _, known := workloadResources[t.gvr.Group]; {
	case t.gvr.Group == "" && !slices.Contains([]string{"pods", "podtemplates", "replicationcontrollers"}, t.gvr.Resource):
		return nil
	case known && !slices.Contains([]string{"", "apps", "batch"}, t.gvr.Group):
		return nil
	}
	var found []accountReference
	var look func(path string, value any)
	look = func(path string, value any) {
		switch value := value.(type) {
		case []any:
			for i, item := range value {
				look(fmt.Sprintf("%s[%d]", path, i), item)
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(value)) {
				at := strings.TrimPrefix(path+"."+key, ".")
				name, isText := value[key].(string)
				switch {
				case key == "metadata": // labels and annotations mean nothing here
				case (key == "serviceAccountName" || key == "serviceAccount") && isText && name != "" && name != "default":
					found = append(found, accountReference{at, name})
				default:
					look(at, value[key])
				}
			}
		}
	}
	look("", t.object.Object)
	return found
}

// isUsableAccount tells whether Pods from the hub may run as a ServiceAccount: one that came from the
// hub itself, or that the cluster's admin labelled.
func isUsableAccount(o metav1.Object, hub string) bool {
	return o.GetLabels()[v1alpha1.AccessLabel] == v1alpha1.AccessUse ||
		o.GetLabels()[v1alpha1.ManagedLabel] == "true" && o.GetAnnotations()[v1alpha1.HubUIDAnnotation] == hub
}
