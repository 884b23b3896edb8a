// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	danm "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Placeable tells whether objects of a kind may run in clusters. Of cluster-scoped kinds only custom
// ones may.
func Placeable(kind schema.GroupKind, namespaced bool) bool {
	if isHubOnly(kind) {
		return false
	}
	if namespaced {
		return true
	}
	return strings.Contains(kind.Group, ".") && !strings.HasSuffix(kind.Group, ".k8s.io")
}

// isHubOnly tells whether namespaced objects of a kind stay at the hub: each cluster makes its own, or its
// admin decides on them.
func isHubOnly(kind schema.GroupKind) bool {
	switch kind.Group {
	case "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "rbac.authorization.k8s.io", "authorization.k8s.io", "metrics.k8s.io", v1alpha1.GroupName:
		return true
	case "":
		return slices.Contains([]string{"Event", "Endpoints", "Binding", "ResourceQuota", "LimitRange"}, kind.Kind)
	case "apps":
		return kind.Kind == "ControllerRevision"
	case danm.GroupName:
		return slices.Contains([]string{"DanmEp", "NodeNetwork", "TenantConfig"}, kind.Kind)
	}
	return false
}

// PlaceableObject tells whether an object of a placeable kind may be placed. It excludes the system's
// namespaces, and objects that each cluster has of its own.
func PlaceableObject(kind schema.GroupKind, namespace, name string) bool {
	if strings.HasPrefix(namespace, "kube-") || strings.HasPrefix(namespace, v1alpha1.ClusterNamespacePrefix) ||
		namespace == v1alpha1.SystemNamespace || namespace == v1alpha1.SecretCopyNamespace {
		return false
	}
	switch kind {
	case schema.GroupKind{Kind: "ConfigMap"}:
		return name != "kube-root-ca.crt" && !isHelmRecord(name)
	case schema.GroupKind{Kind: "Secret"}:
		return !isHelmRecord(name)
	case schema.GroupKind{Kind: "ServiceAccount"}:
		return name != "default"
	case schema.GroupKind{Kind: "Service"}:
		return namespace != "default" || name != "kubernetes"
	}
	return true
}

// isHelmRecord tells whether a Secret or ConfigMap is Helm's record of a release. It belongs to the API server that Helm
// has installed the release at: in a cluster, Helm would take the placed objects for a release of that cluster.
func isHelmRecord(name string) bool { return strings.HasPrefix(name, "sh.helm.release.v1.") }

// RunsOnce tells whether an object of this kind must never run a second time.
func RunsOnce(kind schema.GroupKind) bool {
	return kind == schema.GroupKind{Kind: "Pod"} || kind == schema.GroupKind{Group: "batch", Kind: "Job"}
}

// defaultReplicaMode is the replica mode of a kind when the policy sets none.
func defaultReplicaMode(kind schema.GroupKind) v1alpha1.ReplicaMode {
	switch kind {
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}, schema.GroupKind{Group: "apps", Kind: "ReplicaSet"},
		schema.GroupKind{Kind: "ReplicationController"}:
		return v1alpha1.ReplicasDivide
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, schema.GroupKind{Group: "batch", Kind: "Job"},
		schema.GroupKind{Group: "batch", Kind: "CronJob"}, schema.GroupKind{Kind: "Pod"}, schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		return v1alpha1.ReplicasSingle
	}
	return v1alpha1.ReplicasDuplicate
}

// BreaksBeforeMake tells whether objects of a kind must not run in two clusters at a time, unless a policy
// that names the kind allows it.
func BreaksBeforeMake(kind schema.GroupKind) bool {
	switch kind {
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, schema.GroupKind{Group: "batch", Kind: "CronJob"}:
		return true
	}
	return RunsOnce(kind)
}
