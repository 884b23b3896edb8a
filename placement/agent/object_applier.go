// SPDX-License-Identifier: Apache-2.0

package agent

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

// applier writes objects in the cluster.
type applier struct {
	dynamic    dynamic.Interface
	discovery  discovery.DiscoveryInterface
	guard      Guard
	namespaces *namespaces
	pods       *pods

	gone sync.Map // by UID: since when an object is gone that has left Pods
}

// known is what the agent knows of an object from before.
type known struct {
	// uid of the object that it made; empty when it made none, or does not know.
	uid types.UID
	// digest of our fields after the last apply of this very manifest; "" when it
	// must be applied in any case.
	digest string
	// told is whether the hub has heard of the object: records are lost when a cluster
	// leaves its hub, and joins again.
	told bool
}

// outcome is what ensure found and did.
type outcome struct {
	// live is the object as it is now; nil when there is none, or it is not ours.
	live *unstructured.Unstructured
	// applied tells that it has been written.
	applied bool
}

func (a *applier) resource(t target) dynamic.ResourceInterface {
	if ns := t.object.GetNamespace(); ns != "" {
		return a.dynamic.Resource(t.gvr).Namespace(ns)
	}
	return a.dynamic.Resource(t.gvr)
}

// read returns the live object; nil when there is none.
func (a *applier) read(ctx context.Context, t target) (*unstructured.Unstructured, error) {
	live, err := a.resource(t).Get(ctx, t.object.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", t, err)
	}
	return live, nil
}

// noClaim tells whether a PersistentVolumeClaim, named namespace/name, is known not to be there.
func (a *applier) noClaim(ctx context.Context, claim string) bool {
	ns, name, _ := strings.Cut(claim, "/")
	_, err := a.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// ensure brings the object to what the target says. A refusal is an error whose cause
// a person must mend.
func (a *applier) ensure(ctx context.Context, t target, spec *v1alpha1.WorkSpec, k known) (outcome, error) {
	if why := a.guard.refuses(t); why != "" {
		return outcome{}, &refusal{reason: v1alpha1.ReasonRefused, message: why}
	}
	ns := t.object.GetNamespace()
	access, err := a.namespaces.find(ctx, ns, spec)
	switch {
	case err != nil:
		return outcome{}, refused(t, err)
	case access.may == "":
		return outcome{}, &refusal{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: metadata.namespace: the agent did not make namespace %s of this cluster, "+
			"so the cluster's admin must allow it: kubectl label namespace %s %s=%s", t, ns, ns, v1alpha1.AccessLabel, v1alpha1.AccessCreate)}
	}
	out, err := a.bring(ctx, t, spec, k, access)
	if r, ok := errors.AsType[*refusal](err); ok && r.forbidden {
		if a.namespaces.settling(ns) {
			err = &refusal{reason: v1alpha1.ReasonProgressing, message: r.message}
		} else {
			a.namespaces.forget(ns) // its RoleBinding may be gone: the next attempt looks
		}
	}
	return out, err
}

// bring is ensure where the object may be written.
func (a *applier) bring(ctx context.Context, t target, spec *v1alpha1.WorkSpec, k known, access access) (outcome, error) {
	var live *unstructured.Unstructured
	if !access.missing {
		var err error
		if live, err = a.read(ctx, t); err != nil {
			return outcome{}, refused(t, err)
		}
	}
	policy := spec.Apply
	switch {
	case live == nil && (k.uid != "" || k.told) && t.runsOnce():
		return outcome{}, &refusal{reason: v1alpha1.ReasonGone, message: fmt.Sprintf("%s: it is gone, not by an order, and never runs twice", t)}
	case live == nil:
		if access.missing {
			if err := a.namespaces.create(ctx, t.object.GetNamespace(), spec); err != nil {
				return outcome{}, refused(t, err)
			}
		}
		if err := a.mayRunAs(ctx, t, spec); err != nil {
			return outcome{}, err
		}
		return a.create(ctx, t, policy)
	case live.GetDeletionTimestamp() != nil:
		return outcome{live: live}, &refusal{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf("%s: it is being deleted", t)}
	}
	if err := mayTake(t, live, policy, k, access); err != nil {
		return outcome{}, err
	}
	if k.uid == live.GetUID() && k.digest != "" && k.digest == digest(live, owned(live)) && !a.mustCede(live, policy) {
		return outcome{live: live}, nil
	}
	if err := a.mayRunAs(ctx, t, spec); err != nil {
		return outcome{live: live}, err
	}
	return a.update(ctx, t, live, policy)
}

// mayTake refuses an object that the agent did not make, unless the Placement and the
// cluster's admin both want it to be taken over.
func mayTake(t target, live *unstructured.Unstructured, policy v1alpha1.ApplyPolicy, k known, access access) error {
	switch {
	case live.GetUID() == k.uid, t.ours(live):
		return nil
	case policy.Conflict != v1alpha1.ConflictAdopt && policy.Conflict != v1alpha1.ConflictForce:
		return &refusal{reason: v1alpha1.ReasonConflict, message: fmt.Sprintf("%s: it was there before and is not the agent's; "+
			"apply.conflict Adopt in the Placement takes it over, where the cluster's admin allows that", t)}
	case access.may != v1alpha1.AccessAdopt && live.GetLabels()[v1alpha1.AccessLabel] != v1alpha1.AccessAdopt:
		return &refusal{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: apply.conflict %s: it was there before and is not the agent's, "+
			"so the cluster's admin must allow to take it over: kubectl label %s %s=%s", t, policy.Conflict, t.argument(), v1alpha1.AccessLabel, v1alpha1.AccessAdopt)}
	}
	return nil
}

// mayRunAs refuses Pods that would run as a ServiceAccount which is the cluster's own: with
// that they had rights there that the hub was not given.
func (a *applier) mayRunAs(ctx context.Context, t target, spec *v1alpha1.WorkSpec) error {
	for _, named := range accounts(t) {
		o, err := a.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).
			Namespace(t.object.GetNamespace()).Get(ctx, named.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return &refusal{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf(
				"%s: %s: ServiceAccount %s must be here before the Pods that run as it: place it with them", t, named.field, named.name)}
		case err != nil:
			return refused(t, err)
		case !usable(o, string(spec.HubUID)):
			return &refusal{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: %s: ServiceAccount %s must come from the hub, or the cluster's admin must allow it: "+
				"kubectl label serviceaccount %s %s=%s", t, named.field, named.name, named.name, v1alpha1.AccessLabel, v1alpha1.AccessUse)}
		}
	}
	return nil
}

// mustCede tells whether others own by now what the policy yields, and we do still.
func (a *applier) mustCede(live *unstructured.Unstructured, policy v1alpha1.ApplyPolicy) bool {
	c, err := cede(live, policy)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(c.drop, owned(live).has)
}

// create makes the object.
func (a *applier) create(ctx context.Context, t target, policy v1alpha1.ApplyPolicy) (outcome, error) {
	live, err := a.write(ctx, t, t.object, v1alpha1.AgentManager, false)
	if err != nil {
		if ns := t.object.GetNamespace(); apierrors.IsNotFound(err) && a.namespaces.gone(ctx, ns) {
			a.namespaces.forget(ns)
			err = &refusal{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf("%s: its namespace was deleted", t)}
		}
		return outcome{}, refused(t, err)
	}
	if len(policy.CreateOnly) == 0 {
		return outcome{live: live, applied: true}, nil
	}
	return a.update(ctx, t, live, policy)
}

// update applies the manifest to an object that is there, this very one, less what is
// left to others.
func (a *applier) update(ctx context.Context, t target, live *unstructured.Unstructured, policy v1alpha1.ApplyPolicy) (outcome, error) {
	c, err := cede(live, policy)
	if err != nil {
		return outcome{live: live}, &refusal{reason: v1alpha1.ReasonRefused, message: err.Error()}
	}
	hand, err := c.handover(live)
	if err != nil {
		return outcome{live: live}, err
	}
	if hand != nil {
		if _, err := a.write(ctx, t, hand, cededManager, true); err != nil {
			return outcome{live: live}, refused(t, err)
		}
	}
	if live, err = a.turn(ctx, t, live, c); err != nil {
		return outcome{live: live}, err
	}
	o := t.object.DeepCopy()
	for _, path := range c.drop {
		unstructured.RemoveNestedField(o.Object, path...)
	}
	o.SetUID(live.GetUID())
	now, err := a.write(ctx, t, o, v1alpha1.AgentManager, policy.Conflict == v1alpha1.ConflictForce)
	if err != nil {
		return outcome{live: live}, refused(t, err)
	}
	return outcome{live: now, applied: true}, nil
}

// turn sets replicas that are left to others to 0 and back, when the hub asks for that:
// how many there are is an autoscaler's to say, whether there are any the hub's, which
// empties a cluster before it leaves it.
func (a *applier) turn(ctx context.Context, t target, live *unstructured.Unstructured, c cession) (*unstructured.Unstructured, error) {
	path := []string{"spec", "replicas"}
	asked, said, _ := unstructured.NestedInt64(t.object.Object, path...)
	has, there, _ := unstructured.NestedInt64(live.Object, path...)
	ceded := slices.ContainsFunc(c.drop, func(p []string) bool { return slices.Equal(p, path) })
	if !ceded || !said || !there || (asked == 0) == (has == 0) {
		return live, nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"replicas":%d}}`, live.GetUID(), asked)
	now, err := a.resource(t).Patch(ctx, live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: cededManager})
	if err != nil {
		return live, refused(t, err)
	}
	return now, nil
}

func (a *applier) write(ctx context.Context, t target, o *unstructured.Unstructured, manager string, force bool) (*unstructured.Unstructured, error) {
	return a.resource(t).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: manager, Force: force})
}
