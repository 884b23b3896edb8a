// SPDX-License-Identifier: Apache-2.0

package works

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

const (
	// accessTTL is how long the agent caches the access to a namespace. A withdrawal takes effect at once,
	// because the ValidatingAdmissionPolicy in deployments/placement/agent rejects the agent's writes.
	accessTTL = 10 * time.Second
	// bindingPropagationDelay is how long it may take until all API servers use a new RoleBinding.
	bindingPropagationDelay = 10 * time.Second
	// workloadRole is the ClusterRole of the agent in each namespace in which it may write, and bindingName
	// the name of the RoleBinding.
	workloadRole, bindingName = "patchbay-agent-placeable", "patchbay-agent"
)

// Labels of Pod Security.
const (
	podSecurityPrefix = "pod-security.kubernetes.io/"
	enforceLabel      = podSecurityPrefix + "enforce"
)

// access is what the hub may do in a namespace of the cluster.
type access struct {
	// allowed is a value of AccessLabel; empty when the hub may do nothing.
	allowed string
	// missing is true when the namespace does not exist: the agent creates it.
	missing bool

	enforcedLevel v1alpha1.PodSecurityLevel // of the namespace
	checkedAt     time.Time
	boundAt       time.Time
	// newlyBound is true when the agent has just created the RoleBinding.
	newlyBound bool
}

// namespaceAccess finds in which namespaces the hub may write, and creates missing ones. In each of them the
// agent binds itself to workloadRole; it has no rights to write elsewhere.
type namespaceAccess struct {
	client         client.Client
	minPodSecurity v1alpha1.PodSecurityLevel
	account        types.NamespacedName // the agent's ServiceAccount

	mu          sync.Mutex
	byNamespace map[string]access
}

// accessTo returns the access of a Work's hub to a namespace. For cluster-scoped objects, whose namespace is
// empty, RBAC decides.
func (n *namespaceAccess) accessTo(ctx context.Context, name string, spec *v1alpha1.WorkSpec) (access, error) {
	if name == "" {
		return access{allowed: v1alpha1.AccessCreate}, nil
	}
	n.mu.Lock()
	before := n.byNamespace[name]
	n.mu.Unlock()
	if before.allowed != "" && time.Since(before.checkedAt) < accessTTL && !n.needsStricterLevel(before, spec) {
		return before, nil
	}
	ns := &corev1.Namespace{}
	err := n.client.Get(ctx, client.ObjectKey{Name: name}, ns)
	switch {
	case apierrors.IsNotFound(err):
		n.forget(name)
		return access{allowed: v1alpha1.AccessOwned, missing: true}, nil
	case err != nil:
		return access{}, fmt.Errorf("get namespace %s: %w", name, err)
	case ns.DeletionTimestamp != nil:
		n.forget(name)
		return access{}, &conditionError{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf("namespace %s is being deleted in this cluster", name)}
	}
	now := access{allowed: allowedAccess(ns, spec), enforcedLevel: podSecurityLevel(ns.Labels[enforceLabel]), checkedAt: time.Now(), boundAt: before.boundAt}
	if now.allowed == "" {
		n.forget(name)
		return now, nil
	}
	if n.needsStricterLevel(now, spec) {
		if now.enforcedLevel, err = n.raisePodSecurity(ctx, ns, spec); err != nil {
			return access{}, err
		}
	}
	return n.bindRole(ctx, name, now)
}

// allowedAccess returns what a namespace allows. AccessOwned is for the hub only for which the agent created
// the namespace.
func allowedAccess(ns *corev1.Namespace, spec *v1alpha1.WorkSpec) string {
	switch allowed := ns.Labels[v1alpha1.AccessLabel]; allowed {
	case v1alpha1.AccessCreate, v1alpha1.AccessAdopt:
		return allowed
	case v1alpha1.AccessOwned:
		if ns.Annotations[v1alpha1.HubUIDAnnotation] == string(spec.HubUID) {
			return allowed
		}
	}
	return ""
}

// needsStricterLevel tells whether the hub requests a stricter level than a namespace of the agent has. The
// agent never lowers a level; only the cluster's admin may.
func (n *namespaceAccess) needsStricterLevel(now access, spec *v1alpha1.WorkSpec) bool {
	return now.allowed == v1alpha1.AccessOwned && strictness(spec.PodSecurity["enforce"]) > strictness(now.enforcedLevel)
}

// raisePodSecurity sets the level of a namespace to the hub's.
func (n *namespaceAccess) raisePodSecurity(ctx context.Context, ns *corev1.Namespace, spec *v1alpha1.WorkSpec) (v1alpha1.PodSecurityLevel, error) {
	before, level := ns.DeepCopy(), spec.PodSecurity["enforce"]
	ns.Labels[enforceLabel] = string(level)
	if err := n.client.Patch(ctx, ns, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return "", fmt.Errorf("label namespace %s: %w", ns.Name, err)
	}
	return level, nil
}

// bindRole creates the agent's RoleBinding in the namespace, once, and caches the access.
func (n *namespaceAccess) bindRole(ctx context.Context, name string, now access) (access, error) {
	known := now
	if now.boundAt.IsZero() {
		err := n.client.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: bindingName, Labels: map[string]string{v1alpha1.ManagedLabel: "true"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: workloadRole},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: n.account.Namespace, Name: n.account.Name}},
		})
		known.boundAt = time.Now() // an existing one may be as new: another worker may have created it
		now.boundAt, now.newlyBound = known.boundAt, err == nil
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return access{}, fmt.Errorf("create RoleBinding %s in namespace %s: %w", bindingName, name, err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byNamespace[name] = known
	return now, nil
}

// createNamespace creates a missing namespace. It returns an error if another client has created it
// meanwhile and does not allow the hub to write.
func (n *namespaceAccess) createNamespace(ctx context.Context, name string, spec *v1alpha1.WorkSpec) error {
	labels := map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessOwned}
	maps.Copy(labels, podSecurityLabels(spec, n.minPodSecurity))
	err := n.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: labels, Annotations: map[string]string{v1alpha1.HubUIDAnnotation: string(spec.HubUID)},
	}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	found, err := n.accessTo(ctx, name, spec)
	if err == nil && (found.allowed == "" || found.missing) {
		err = &conditionError{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf("namespace %s: another client created it in this cluster, and does not allow the hub to write there", name)}
	}
	return err
}

// podSecurityLabels returns the labels of a namespace that the agent creates: the hub's levels, and at least
// the cluster's own. It sets no versions of the Pod Security Standards, because an old one may be weaker.
func podSecurityLabels(spec *v1alpha1.WorkSpec, least v1alpha1.PodSecurityLevel) map[string]string {
	labels := map[string]string{}
	for mode, level := range spec.PodSecurity {
		if mode == "enforce" || mode == "warn" || mode == "audit" {
			labels[podSecurityPrefix+mode] = string(level)
		}
	}
	if strictness(podSecurityLevel(labels[enforceLabel])) < strictness(least) {
		labels[enforceLabel] = string(least)
	}
	return labels
}

// restoreAccess makes sure that the agent's RoleBinding exists in a namespace where a read was forbidden.
// settled is true when it existed long enough: then the read was forbidden for another reason.
func (n *namespaceAccess) restoreAccess(ctx context.Context, name string, spec *v1alpha1.WorkSpec) (found access, settled bool, err error) {
	n.mu.Lock()
	before := n.byNamespace[name]
	if time.Since(before.boundAt) >= bindingPropagationDelay {
		delete(n.byNamespace, name) // the RoleBinding may be gone
	}
	n.mu.Unlock()
	if found, err = n.accessTo(ctx, name, spec); err != nil || found.allowed == "" || found.missing {
		return found, false, err
	}
	settled = !before.boundAt.IsZero() && time.Since(before.boundAt) >= bindingPropagationDelay && !found.newlyBound
	if settled {
		n.mu.Lock()
		defer n.mu.Unlock()
		found.boundAt = before.boundAt // so that the next forbidden read counts as settled at once
		n.byNamespace[name] = found
	}
	return found, settled, nil
}

// transferToHub assigns the namespaces that the agent created for the hub of a record to another hub, after a
// user has assigned the record to that hub.
func (n *namespaceAccess) transferToHub(ctx context.Context, from, to *v1alpha1.WorkSpec) error {
	if from.HubUID == to.HubUID {
		return nil
	}
	for _, m := range slices.Concat(from.Manifests, to.Manifests) {
		t, err := parseManifest(*to, m)
		if err != nil || t.object.GetNamespace() == "" {
			continue
		}
		ns := &corev1.Namespace{}
		err = n.client.Get(ctx, client.ObjectKey{Name: t.object.GetNamespace()}, ns)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return fmt.Errorf("get namespace %s: %w", t.object.GetNamespace(), err)
		case ns.Labels[v1alpha1.AccessLabel] != v1alpha1.AccessOwned, ns.Annotations[v1alpha1.HubUIDAnnotation] != string(from.HubUID):
			continue
		}
		before := ns.DeepCopy()
		ns.Annotations[v1alpha1.HubUIDAnnotation] = string(to.HubUID)
		if err := n.client.Patch(ctx, ns, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("annotate namespace %s: %w", ns.Name, err)
		}
		n.forget(ns.Name)
	}
	return nil
}

// isBindingRecent tells whether the agent's RoleBinding in a namespace is so new that an API server may not
// use it yet.
func (n *namespaceAccess) isBindingRecent(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Since(n.byNamespace[name].boundAt) < bindingPropagationDelay
}

// isGone tells whether a namespace does not exist. Its RoleBinding is gone with it, so that the agent can no
// longer read its objects.
func (n *namespaceAccess) isGone(ctx context.Context, name string) bool {
	return name != "" && apierrors.IsNotFound(n.client.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))
}

func (n *namespaceAccess) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byNamespace, name)
}

// strictness orders the Pod Security levels.
func strictness(level v1alpha1.PodSecurityLevel) int {
	switch level {
	case v1alpha1.PodSecurityRestricted:
		return 2
	case v1alpha1.PodSecurityBaseline:
		return 1
	}
	return 0
}

// podSecurityLevel returns the level of a label; privileged without one.
func podSecurityLevel(label string) v1alpha1.PodSecurityLevel {
	return cmp.Or(v1alpha1.PodSecurityLevel(label), v1alpha1.PodSecurityPrivileged)
}
