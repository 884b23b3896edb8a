// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// objectApplier writes objects in the cluster.
type objectApplier struct {
	dynamic    dynamic.Interface
	discovery  discovery.DiscoveryInterface
	guard      Guard
	namespaces *namespaceAccess
	pods       *podIndex

	goneSince sync.Map // by UID: since when an object is gone that has left Pods
}

// priorState is what the agent knows of an object from before.
type priorState struct {
	// uid of the object that it made; empty when it made none, or does not know.
	uid types.UID
	// digest of our fields after the last apply of this very manifest; "" when it
	// must be applied in any case.
	digest string
	// reported is whether the hub has heard of the object: records are lost when a cluster
	// leaves its hub, and joins again.
	reported bool
}

// applyResult is what ensure found and did.
type applyResult struct {
	// live is the object as it is now; nil when there is none, or it is not ours.
	live *unstructured.Unstructured
	// applied tells that it has been written.
	applied bool
}

func (a *objectApplier) resourceClient(t desiredObject) dynamic.ResourceInterface {
	if ns := t.object.GetNamespace(); ns != "" {
		return a.dynamic.Resource(t.gvr).Namespace(ns)
	}
	return a.dynamic.Resource(t.gvr)
}

// readLive returns the live object; nil when there is none.
func (a *objectApplier) readLive(ctx context.Context, t desiredObject) (*unstructured.Unstructured, error) {
	live, err := a.resourceClient(t).Get(ctx, t.object.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", t, err)
	}
	return live, nil
}

// isVolumeClaimMissing tells whether a PersistentVolumeClaim, named namespace/name, is known not to be there.
func (a *objectApplier) isVolumeClaimMissing(ctx context.Context, claim string) bool {
	ns, name, _ := strings.Cut(claim, "/")
	_, err := a.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// apply brings the object to what the target says. A refusal is an error whose cause
// a person must mend.
func (a *objectApplier) apply(ctx context.Context, t desiredObject, spec *v1alpha1.WorkSpec, k priorState) (applyResult, error) {
	if why := a.guard.refusalMessage(t); why != "" {
		return applyResult{}, &conditionError{reason: v1alpha1.ReasonRefused, message: why}
	}
	ns := t.object.GetNamespace()
	access, err := a.namespaces.accessTo(ctx, ns, spec)
	switch {
	case err != nil:
		return applyResult{}, asConditionError(t, err)
	case access.allowed == "":
		return applyResult{}, &conditionError{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: metadata.namespace: the agent did not make namespace %s of this cluster, "+
			"so the cluster's admin must allow it: kubectl label namespace %s %s=%s", t, ns, ns, v1alpha1.AccessLabel, v1alpha1.AccessCreate)}
	}
	out, err := a.applyAllowed(ctx, t, spec, k, access)
	if r, ok := errors.AsType[*conditionError](err); ok && r.forbidden {
		if a.namespaces.isBindingRecent(ns) {
			err = &conditionError{reason: v1alpha1.ReasonProgressing, message: r.message}
		} else {
			a.namespaces.forget(ns) // its RoleBinding may be gone: the next attempt looks
		}
	}
	return out, err
}

// applyAllowed is ensure where the object may be written.
func (a *objectApplier) applyAllowed(ctx context.Context, t desiredObject, spec *v1alpha1.WorkSpec, k priorState, access access) (applyResult, error) {
	var live *unstructured.Unstructured
	if !access.missing {
		var err error
		if live, err = a.readLive(ctx, t); err != nil {
			return applyResult{}, asConditionError(t, err)
		}
	}
	policy := spec.Apply
	switch {
	case live == nil && (k.uid != "" || k.reported) && t.runsOnce():
		return applyResult{}, &conditionError{reason: v1alpha1.ReasonDeletedInCluster, message: fmt.Sprintf("%s: it is gone, not by an order, and never runs twice", t)}
	case live == nil:
		if access.missing {
			if err := a.namespaces.createNamespace(ctx, t.object.GetNamespace(), spec); err != nil {
				return applyResult{}, asConditionError(t, err)
			}
		}
		if err := a.checkServiceAccounts(ctx, t, spec); err != nil {
			return applyResult{}, err
		}
		return a.create(ctx, t, policy)
	case live.GetDeletionTimestamp() != nil:
		return applyResult{live: live}, &conditionError{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf("%s: it is being deleted", t)}
	}
	if err := checkAdoption(t, live, policy, k, access); err != nil {
		return applyResult{}, err
	}
	if k.uid == live.GetUID() && k.digest != "" && k.digest == fieldsDigest(live, agentFields(live)) && !a.mustCede(live, policy) {
		return applyResult{live: live}, nil
	}
	if err := a.checkServiceAccounts(ctx, t, spec); err != nil {
		return applyResult{live: live}, err
	}
	return a.update(ctx, t, live, policy)
}

// checkAdoption refuses an object that the agent did not make, unless the Placement and the
// cluster's admin both want it to be taken over.
func checkAdoption(t desiredObject, live *unstructured.Unstructured, policy v1alpha1.ApplyPolicy, k priorState, access access) error {
	switch {
	case live.GetUID() == k.uid, t.isOurs(live):
		return nil
	case policy.Conflict != v1alpha1.ConflictAdopt && policy.Conflict != v1alpha1.ConflictForce:
		return &conditionError{reason: v1alpha1.ReasonConflict, message: fmt.Sprintf("%s: it was there before and is not the agent's; "+
			"apply.conflict Adopt in the Placement takes it over, where the cluster's admin allows that", t)}
	case access.allowed != v1alpha1.AccessAdopt && live.GetLabels()[v1alpha1.AccessLabel] != v1alpha1.AccessAdopt:
		return &conditionError{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: apply.conflict %s: it was there before and is not the agent's, "+
			"so the cluster's admin must allow to take it over: kubectl label %s %s=%s", t, policy.Conflict, t.kubectlArgs(), v1alpha1.AccessLabel, v1alpha1.AccessAdopt)}
	}
	return nil
}

// checkServiceAccounts refuses Pods that would run as a ServiceAccount which is the cluster's own: with
// that they had rights there that the hub was not given.
func (a *objectApplier) checkServiceAccounts(ctx context.Context, t desiredObject, spec *v1alpha1.WorkSpec) error {
	for _, named := range accountReferences(t) {
		o, err := a.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).
			Namespace(t.object.GetNamespace()).Get(ctx, named.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return &conditionError{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf(
				"%s: %s: ServiceAccount %s must be here before the Pods that run as it: place it with them", t, named.field, named.name)}
		case err != nil:
			return asConditionError(t, err)
		case !isUsableAccount(o, string(spec.HubUID)):
			return &conditionError{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: %s: ServiceAccount %s must come from the hub, or the cluster's admin must allow it: "+
				"kubectl label serviceaccount %s %s=%s", t, named.field, named.name, named.name, v1alpha1.AccessLabel, v1alpha1.AccessUse)}
		}
	}
	return nil
}

// mustCede tells whether others own by now what the policy yields, and we do still.
func (a *objectApplier) mustCede(live *unstructured.Unstructured, policy v1alpha1.ApplyPolicy) bool {
	c, err := findCededFields(live, policy)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(c.omitted, agentFields(live).has)
}

// create makes the object.
func (a *objectApplier) create(ctx context.Context, t desiredObject, policy v1alpha1.ApplyPolicy) (applyResult, error) {
	live, err := a.serverSideApply(ctx, t, t.object, v1alpha1.AgentFieldManager, false)
	if err != nil {
		if ns := t.object.GetNamespace(); apierrors.IsNotFound(err) && a.namespaces.isGone(ctx, ns) {
			a.namespaces.forget(ns)
			err = &conditionError{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf("%s: its namespace was deleted", t)}
		}
		return applyResult{}, asConditionError(t, err)
	}
	if len(policy.CreateOnly) == 0 {
		return applyResult{live: live, applied: true}, nil
	}
	return a.update(ctx, t, live, policy)
}

// update applies the manifest to an object that is there, this very one, less what is
// left to others.
func (a *objectApplier) update(ctx context.Context, t desiredObject, live *unstructured.Unstructured, policy v1alpha1.ApplyPolicy) (applyResult, error) {
	c, err := findCededFields(live, policy)
	if err != nil {
		return applyResult{live: live}, &conditionError{reason: v1alpha1.ReasonRefused, message: err.Error()}
	}
	hand, err := c.transferManifest(live)
	if err != nil {
		return applyResult{live: live}, err
	}
	if hand != nil {
		if _, err := a.serverSideApply(ctx, t, hand, cededManager, true); err != nil {
			return applyResult{live: live}, asConditionError(t, err)
		}
	}
	if live, err = a.scaleCededReplicas(ctx, t, live, c); err != nil {
		return applyResult{live: live}, err
	}
	o := t.object.DeepCopy()
	for _, path := range c.omitted {
		unstructured.RemoveNestedField(o.Object, path...)
	}
	o.SetUID(live.GetUID())
	now, err := a.serverSideApply(ctx, t, o, v1alpha1.AgentFieldManager, policy.Conflict == v1alpha1.ConflictForce)
	if err != nil {
		return applyResult{live: live}, asConditionError(t, err)
	}
	return applyResult{live: now, applied: true}, nil
}

// scaleCededReplicas sets replicas that are left to others to 0 and back, when the hub asks for that:
// how many there are is an autoscaler's to say, whether there are any the hub's, which
// empties a cluster before it leaves it.
func (a *objectApplier) scaleCededReplicas(ctx context.Context, t desiredObject, live *unstructured.Unstructured, c cededFields) (*unstructured.Unstructured, error) {
	path := []string{"spec", "replicas"}
	asked, said, _ := unstructured.NestedInt64(t.object.Object, path...)
	has, there, _ := unstructured.NestedInt64(live.Object, path...)
	ceded := slices.ContainsFunc(c.omitted, func(p []string) bool { return slices.Equal(p, path) })
	if !ceded || !said || !there || (asked == 0) == (has == 0) {
		return live, nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"replicas":%d}}`, live.GetUID(), asked)
	now, err := a.resourceClient(t).Patch(ctx, live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: cededManager})
	if err != nil {
		return live, asConditionError(t, err)
	}
	return now, nil
}

func (a *objectApplier) serverSideApply(ctx context.Context, t desiredObject, o *unstructured.Unstructured, manager string, force bool) (*unstructured.Unstructured, error) {
	return a.resourceClient(t).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: manager, Force: force})
}
