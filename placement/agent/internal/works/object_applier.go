// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/managedfields"
)

// objectApplier applies objects in the cluster.
type objectApplier struct {
	dynamic    dynamic.Interface
	guard      Guard
	namespaces *namespaceAccess
}

// priorState is the state of an object after the agent's last apply.
type priorState struct {
	// uid of the object in the record; empty when the record has none.
	uid types.UID
	// digest of the agent's fields after the last apply of the same manifest; "" when the agent must apply
	// the manifest in any case.
	digest string
	// reported is true when the Work's status has the object: a cluster that leaves its hub and joins again
	// loses its records.
	reported bool
	// creating is true when an earlier agent has recorded that it creates an object that runs once, and not what
	// came of it.
	creating bool
	// rescaled is true when a user has changed the replicas since the last apply.
	rescaled bool
	// prepare makes what must exist before the object is created; nil: nothing.
	prepare func(context.Context) error
	// recordCreating records that before this agent creates the object.
	recordCreating func(context.Context) error
}

// applyResult is the result of an apply.
type applyResult struct {
	// live is the object after the apply; nil when there is none, or it is not the agent's.
	live *unstructured.Unstructured
	// applied is true when the agent has written the object.
	applied bool
}

// apply applies the object, unless it is as the agent applied it last. A *conditionError has the reason
// and the message for the user.
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
		return applyResult{}, &conditionError{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: metadata.namespace: the agent did not create namespace %s of this cluster, "+
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

// applyAllowed applies the object in a namespace in which the hub may write.
func (a *objectApplier) applyAllowed(ctx context.Context, t desiredObject, spec *v1alpha1.WorkSpec, k priorState, access access) (applyResult, error) {
	var live *unstructured.Unstructured
	if !access.missing {
		var err error
		if live, err = t.readLive(ctx, a.dynamic); err != nil {
			return applyResult{}, asConditionError(t, err)
		}
	}
	policy := applyPolicy(spec)
	switch {
	case live == nil:
		return a.createMissing(ctx, t, spec, k, access)
	case live.GetDeletionTimestamp() != nil:
		return applyResult{live: live}, &conditionError{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf("%s: it is being deleted", t)}
	}
	if err := checkAdoption(t, live, policy, k, access); err != nil {
		return applyResult{}, err
	}
	if k.uid == live.GetUID() && k.digest != "" && k.digest == managedfields.Digest(live, managedfields.OfAgent(live)) && !mustCede(live, policy) {
		return applyResult{live: live}, nil
	}
	if err := a.checkServiceAccounts(ctx, t, spec); err != nil {
		return applyResult{live: live}, err
	}
	return a.update(ctx, t, live, spec, k.rescaled)
}

// applyPolicy returns how to apply the manifests. Replicas that replace those of an autoscaler in another cluster
// belong to the autoscaler of this one at once: else the end of the move would take them back.
func applyPolicy(spec *v1alpha1.WorkSpec) v1alpha1.ApplyPolicy {
	policy := spec.Apply
	if spec.MinReplicas != nil && policy.YieldsReplicas() {
		policy.CreateOnly = append(slices.Clone(policy.CreateOnly), replicasField)
	}
	return policy
}

const replicasField v1alpha1.FieldPath = "spec.replicas"

// createMissing creates an object that does not exist, unless it runs once and may have run.
func (a *objectApplier) createMissing(ctx context.Context, t desiredObject, spec *v1alpha1.WorkSpec, k priorState, access access) (applyResult, error) {
	once := runsOnce(t)
	switch {
	case once && (k.uid != "" || k.reported):
		return applyResult{}, &conditionError{reason: v1alpha1.ReasonDeletedInCluster, message: fmt.Sprintf("%s: it was deleted in the cluster, by another client or by an order of the hub "+
			"that was taken back after the deletion had begun, and does not run a second time", t)}
	case once && k.creating:
		return applyResult{}, &conditionError{reason: v1alpha1.ReasonDeletedInCluster, message: fmt.Sprintf("%s: the agent stopped while it created the object, and there is none now: "+
			"it may have run, and does not run a second time. To run it, delete it at the hub and create it again", t)}
	}
	if access.missing {
		if err := a.namespaces.createNamespace(ctx, t.object.GetNamespace(), spec); err != nil {
			return applyResult{}, asConditionError(t, err)
		}
	}
	if err := a.checkServiceAccounts(ctx, t, spec); err != nil {
		return applyResult{}, err
	}
	if k.prepare != nil {
		if err := k.prepare(ctx); err != nil {
			return applyResult{}, asConditionError(t, err)
		}
	}
	if once {
		if err := k.recordCreating(ctx); err != nil {
			return applyResult{}, err
		}
	}
	return a.create(ctx, t, spec)
}

// runsOnce tells whether the agent must not create an object a second time: its owner at the hub
// decides what follows a deletion.
func runsOnce(t desiredObject) bool {
	gr := t.gvr.GroupResource()
	return gr == schema.GroupResource{Resource: "pods"} || gr == schema.GroupResource{Group: "batch", Resource: "jobs"}
}

// checkAdoption rejects an object that the agent did not create, unless both the Placement and the
// cluster's admin allow the agent to adopt it.
func checkAdoption(t desiredObject, live *unstructured.Unstructured, policy v1alpha1.ApplyPolicy, k priorState, access access) error {
	switch {
	case live.GetUID() == k.uid, isOurs(t, live):
		return nil
	case policy.Conflict != v1alpha1.ConflictAdopt && policy.Conflict != v1alpha1.ConflictForce:
		return &conditionError{reason: v1alpha1.ReasonConflict, message: fmt.Sprintf("%s: the object exists and is not the agent's: "+
			"to adopt it, set apply.conflict to Adopt in the Placement; the cluster's admin must allow that, too", t)}
	case access.allowed != v1alpha1.AccessAdopt && live.GetLabels()[v1alpha1.AccessLabel] != v1alpha1.AccessAdopt:
		return &conditionError{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: apply.conflict %s: the object exists and is not the agent's, "+
			"so the cluster's admin must allow its adoption: kubectl label %s %s=%s", t, policy.Conflict, t.kubectlArgs(), v1alpha1.AccessLabel, v1alpha1.AccessAdopt)}
	}
	return nil
}

// isOurs tells whether an agent of this hub created or adopted the live object.
func isOurs(t desiredObject, live *unstructured.Unstructured) bool {
	a := live.GetAnnotations()
	return a[v1alpha1.HubUIDAnnotation] == t.object.GetAnnotations()[v1alpha1.HubUIDAnnotation] &&
		a[v1alpha1.SourceUIDAnnotation] != "" && managedfields.OfAgent(live) != nil
}

// checkServiceAccounts rejects Pods that would run as one of the cluster's own ServiceAccounts, whose
// rights the hub must not get.
func (a *objectApplier) checkServiceAccounts(ctx context.Context, t desiredObject, spec *v1alpha1.WorkSpec) error {
	for _, named := range accountReferences(t) {
		o, err := a.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).
			Namespace(t.object.GetNamespace()).Get(ctx, named.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return &conditionError{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf(
				"%s: %s: ServiceAccount %s must exist before the Pods that run as it: place it with them", t, named.field, named.name)}
		case err != nil:
			return asConditionError(t, err)
		case !isUsableAccount(o, string(spec.HubUID)):
			return &conditionError{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: %s: ServiceAccount %s must come from the hub, or the cluster's admin must allow it: "+
				"kubectl label serviceaccount %s %s=%s", t, named.field, named.name, named.name, v1alpha1.AccessLabel, v1alpha1.AccessUse)}
		}
	}
	return nil
}

// accountReference is a field of a manifest with the name of a ServiceAccount.
type accountReference struct {
	field, name string
}

// accountReferences returns the ServiceAccounts other than default as which Pods of an object would run. It
// looks at all fields with these names, because the Pod template of a custom kind may be anywhere.
func accountReferences(t desiredObject) []accountReference {
	switch known := workloadResources(t.gvr.Group) != nil; {
	case t.gvr.Group == "" && !slices.Contains([]string{"pods", "podtemplates", "replicationcontrollers"}, t.gvr.Resource):
		return nil
	case known && !slices.Contains([]string{"", "apps", "batch"}, t.gvr.Group):
		return nil
	}
	var found []accountReference
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case []any:
			for i, item := range value {
				walk(fmt.Sprintf("%s[%d]", path, i), item)
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(value)) {
				at := strings.TrimPrefix(path+"."+key, ".")
				name, isText := value[key].(string)
				switch {
				case key == "metadata": // labels and annotations are no references
				case (key == "serviceAccountName" || key == "serviceAccount") && isText && name != "" && name != "default":
					found = append(found, accountReference{at, name})
				default:
					walk(at, value[key])
				}
			}
		}
	}
	walk("", t.object.Object)
	return found
}

// isUsableAccount tells whether Pods from the hub may run as a ServiceAccount: the hub placed it, or the
// cluster's admin labelled it.
func isUsableAccount(o metav1.Object, hub string) bool {
	return o.GetLabels()[v1alpha1.AccessLabel] == v1alpha1.AccessUse ||
		o.GetLabels()[v1alpha1.ManagedLabel] == "true" && o.GetAnnotations()[v1alpha1.HubUIDAnnotation] == hub
}

// mustCede tells whether the agent still owns fields that it must leave to other managers.
func mustCede(live *unstructured.Unstructured, policy v1alpha1.ApplyPolicy) bool {
	c, err := managedfields.FindCeded(live, policy)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(c.Omitted, managedfields.OfAgent(live).Has)
}

// create creates the object.
func (a *objectApplier) create(ctx context.Context, t desiredObject, spec *v1alpha1.WorkSpec) (applyResult, error) {
	live, err := a.serverSideApply(ctx, t, t.object, v1alpha1.AgentFieldManager, false)
	if err != nil {
		if ns := t.object.GetNamespace(); apierrors.IsNotFound(err) && a.namespaces.isGone(ctx, ns) {
			a.namespaces.forget(ns)
			err = &conditionError{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf("%s: its namespace was deleted", t)}
		}
		return applyResult{}, asConditionError(t, err)
	}
	if len(applyPolicy(spec).CreateOnly) == 0 {
		return applyResult{live: live, applied: true}, nil
	}
	return a.update(ctx, t, live, spec, false)
}

// update applies the manifest to the live object with its UID, without the fields that it leaves to
// others. Replicas that the agent has left to an autoscaler for a move, and that none has set since, are its own again
// from the time at which a user changes them.
func (a *objectApplier) update(
	ctx context.Context, t desiredObject, live *unstructured.Unstructured, spec *v1alpha1.WorkSpec, rescaled bool,
) (applyResult, error) {
	policy := applyPolicy(spec)
	c, err := managedfields.FindCeded(live, policy)
	if err != nil {
		return applyResult{live: live}, &conditionError{reason: v1alpha1.ReasonRefused, message: err.Error()}
	}
	transfer, err := c.TransferManifest(live)
	if err != nil {
		return applyResult{live: live}, err
	}
	if transfer != nil {
		if _, err := a.serverSideApply(ctx, t, transfer, managedfields.CededManager, true); err != nil {
			return applyResult{live: live}, asConditionError(t, err)
		}
	}
	mayTakeBack := spec.MinReplicas == nil && spec.Apply.YieldsReplicas() && !slices.Contains(spec.Apply.CreateOnly, replicasField)
	rest, isCeded := c.TakeBackReplicas(live)
	if mayTakeBack && isCeded && (rescaled || !c.OmitsReplicas()) {
		c = rest
		live, err = a.setCededReplicas(ctx, t, live) // else the API server reports a conflict with CededManager
	} else {
		live, err = a.scaleCededReplicas(ctx, t, live, c, spec.MinReplicas)
	}
	if err != nil {
		return applyResult{live: live}, err
	}
	o := t.object.DeepCopy()
	for _, path := range c.Omitted {
		unstructured.RemoveNestedField(o.Object, path...)
	}
	o.SetUID(live.GetUID())
	now, err := a.serverSideApply(ctx, t, o, v1alpha1.AgentFieldManager, policy.Conflict == v1alpha1.ConflictForce)
	if err != nil {
		return applyResult{live: live}, asConditionError(t, err)
	}
	return applyResult{live: now, applied: true}, nil
}

// scaleCededReplicas scales an object whose replicas are left to others to 0 and back when the hub requests it: the
// autoscaler decides how many replicas there are, and the hub whether there are any, because it empties a cluster
// before it removes the object. It also raises them to least, which replace those of another cluster.
func (a *objectApplier) scaleCededReplicas(
	ctx context.Context, t desiredObject, live *unstructured.Unstructured, c managedfields.CededFields, least *int32,
) (*unstructured.Unstructured, error) {
	requested, inManifest := requestedReplicas(t)
	current, inLive, _ := unstructured.NestedInt64(live.Object, "spec", "replicas")
	isRaised := least != nil && current < int64(*least)
	if isRaised {
		requested = max(requested, int64(*least))
	}
	if !c.OmitsReplicas() || !inManifest || !inLive || !isRaised && (requested == 0) == (current == 0) {
		return live, nil
	}
	return a.patchCededReplicas(ctx, t, live, requested)
}

// setCededReplicas gives the replicas that CededManager owns the value of the manifest.
func (a *objectApplier) setCededReplicas(ctx context.Context, t desiredObject, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	requested, inManifest := requestedReplicas(t)
	if current, inLive, _ := unstructured.NestedInt64(live.Object, "spec", "replicas"); !inManifest || inLive && current == requested {
		return live, nil
	}
	return a.patchCededReplicas(ctx, t, live, requested)
}

// requestedReplicas returns spec.replicas of a manifest, and whether it has the field.
func requestedReplicas(t desiredObject) (n int64, ok bool) {
	n, ok, err := unstructured.NestedInt64(t.object.Object, "spec", "replicas")
	return n, ok && err == nil
}

func (a *objectApplier) patchCededReplicas(
	ctx context.Context, t desiredObject, live *unstructured.Unstructured, requested int64,
) (*unstructured.Unstructured, error) {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"replicas":%d}}`, live.GetUID(), requested)
	now, err := t.resourceClient(a.dynamic).Patch(ctx, live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: managedfields.CededManager})
	if err != nil {
		return live, asConditionError(t, err)
	}
	return now, nil
}

func (a *objectApplier) serverSideApply(ctx context.Context, t desiredObject, o *unstructured.Unstructured, manager string, force bool) (*unstructured.Unstructured, error) {
	return t.resourceClient(a.dynamic).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: manager, Force: force})
}
