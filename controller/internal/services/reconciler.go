// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// Reconciler makes the slices of one Service at a time what they should be.
type Reconciler struct {
	cfg           Config
	cached        client.Reader
	direct        client.Client
	networks      *networkCache
	tenantSubnets *tenantSubnetCache
	metrics       *metrics
	deduplicator  *eventDeduplicator
	staleBackoff  workqueue.TypedRateLimiter[reconcile.Request]
}

// Reconcile looks at one Service.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	after, err := r.reconcileService(ctx, req.NamespacedName)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // the caches will say so, too
		r.metrics.stale.Inc()
		return reconcile.Result{RequeueAfter: r.staleBackoff.When(req)}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("make the endpoints of Service %s: %w", req.NamespacedName, err)
	}
	r.staleBackoff.Forget(req)
	return reconcile.Result{RequeueAfter: after}, nil
}

// reconcileService compares what a Service has with what it should have, and says when to look again
// although nothing has changed; zero for never.
func (r *Reconciler) reconcileService(ctx context.Context, key client.ObjectKey) (time.Duration, error) {
	svc := &corev1.Service{}
	err := r.cached.Get(ctx, key, svc)
	if apierrors.IsNotFound(err) {
		r.deduplicator.forget(key)
		return 0, r.deleteManagedObjects(ctx, key)
	}
	if err != nil {
		return 0, fmt.Errorf("get cached Service: %w", err)
	}
	judgement := svcwatcher.Classify(svc)
	r.recordClassification(svc, judgement)
	switch judgement.Class {
	case svcwatcher.Managed, svcwatcher.Invalid:
		return r.reconcileEndpoints(ctx, svc, judgement)
	default:
		return 0, r.deleteManagedObjects(ctx, key)
	}
}

// reconcileEndpoints writes what is missing.
func (r *Reconciler) reconcileEndpoints(ctx context.Context, svc *corev1.Service, judgement svcwatcher.Classification) (time.Duration, error) {
	existing, err := r.cachedSlices(ctx, client.ObjectKeyFromObject(svc))
	if err != nil {
		return 0, err
	}
	source, err := r.readSnapshot(ctx, svc, judgement)
	if err != nil {
		return 0, err
	}
	if judgement.Class != svcwatcher.Managed {
		source.Pods, source.DanmEps, err = r.podsBehindSlices(ctx, svc.Namespace, existing)
		if err != nil {
			return 0, err
		}
	}
	if source.PermittedSubnets, err = r.tenantSubnets.permittedFor(ctx, source); err != nil {
		return 0, err
	}
	var want svcwatcher.Endpoints
	if judgement.Class == svcwatcher.Managed {
		want = svcwatcher.Desired(source)
	} else {
		want.Groups = svcwatcher.Retained(source, existing)
	}
	r.recordWithheld(svc, want.Withheld)
	changes := svcwatcher.Plan(svc, want.Groups, existing)
	if err := r.applyChanges(ctx, &changes); err != nil {
		r.recordRejectedWrite(svc, err)
		return 0, err
	}
	if err := r.reconcileLegacyEndpoints(ctx, svc, want.Groups); err != nil {
		return 0, err
	}
	r.recordWarning(svc, subjectWrite, "", "") // what was refused is no more
	if len(want.Withheld) > 0 || len(source.PermittedSubnets) > 0 {
		// Nothing is watched that says that another has given the address back, or that
		// a netadmin has changed allowedClusterSubnets.
		return withheldRecheckPeriod, nil
	}
	return 0, nil
}

// readSnapshot reads from the caches what a Service's endpoints are made from, and tells
// what its networks are to it.
func (r *Reconciler) readSnapshot(ctx context.Context, svc *corev1.Service, j svcwatcher.Classification) (*svcwatcher.Snapshot, error) {
	s := &svcwatcher.Snapshot{
		Service: svc, Request: j.Request, Zone: func(node string) string { return r.zoneOfNode(ctx, node) },
		UsedByOtherPod: func(pod *corev1.Pod, a netip.Addr) bool { return r.usedByOtherPod(ctx, pod, a) },
	}
	if r.cfg.Ranges != nil {
		ranges, err := r.cfg.Ranges.Get()
		if err != nil {
			return nil, err
		}
		s.Ranges = ranges
	}
	if j.Request == nil {
		return s, nil
	}
	s.Networks = map[network.Ref]*network.Network{}
	for _, ref := range j.Request.Networks {
		at, err := r.networks.stateFor(ctx, ref, svc.Namespace)
		if err != nil {
			return nil, err
		}
		if at.Network != nil && at.allowed {
			s.Networks[ref] = at.Network
		}
		r.recordNetworkState(svc, ref, at)
	}
	var pods corev1.PodList
	err := r.cached.List(ctx, &pods, client.InNamespace(svc.Namespace), client.MatchingFields{byLabel: indexedLabel(j.Request.Selector)},
		client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(j.Request.Selector)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list cached Pods: %w", err)
	}
	s.Pods = pods.Items
	for i := range s.Pods {
		eps, err := r.danmEpsOfPod(ctx, svc.Namespace, s.Pods[i].Name)
		if err != nil {
			return nil, err
		}
		s.DanmEps = append(s.DanmEps, eps...)
	}
	return s, nil
}

// zoneOfNode is a Node's, or nothing while there is no such Node.
func (r *Reconciler) zoneOfNode(ctx context.Context, name string) string {
	node := nodeMetadata()
	if err := r.cached.Get(ctx, client.ObjectKey{Name: name}, node, client.UnsafeDisableDeepCopy); err != nil {
		return ""
	}
	return node.Labels[corev1.LabelTopologyZone]
}

// usedByOtherPod reports whether another living Pod has an address, and not on a network of ours:
// tenants may have the same subnets, but none has the Pods' own. It finds what no range
// says, with a CNI plugin that sets no podCIDRs.
func (r *Reconciler) usedByOtherPod(ctx context.Context, pod *corev1.Pod, a netip.Addr) bool {
	var list corev1.PodList
	if err := r.cached.List(ctx, &list, client.MatchingFields{byIP: a.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.UID == pod.UID || other.Status.Phase == corev1.PodSucceeded || other.Status.Phase == corev1.PodFailed {
			continue
		}
		eps, err := r.danmEpsOfPod(ctx, other.Namespace, other.Name)
		if err != nil || !slices.ContainsFunc(eps, func(ep v1.DanmEp) bool { return ep.Spec.PodUID == string(other.UID) && hasAddress(&ep, a) }) {
			return true
		}
	}
	return false
}

// hasAddress reports whether a DanmEp has an address.
func hasAddress(ep *v1.DanmEp, a netip.Addr) bool {
	for _, text := range []string{ep.Spec.Interface.Address, ep.Spec.Interface.AddressIPv6} {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Unmap() == a {
			return true
		}
	}
	return false
}

// podsBehindSlices reads the Pods that are behind slices now.
func (r *Reconciler) podsBehindSlices(ctx context.Context, namespace string, existing []discoveryv1.EndpointSlice) (pods []corev1.Pod, all []v1.DanmEp, err error) {
	seen := map[string]bool{}
	for i := range existing {
		for _, e := range existing[i].Endpoints {
			if e.TargetRef == nil || seen[e.TargetRef.Name] {
				continue
			}
			seen[e.TargetRef.Name] = true
			var pod corev1.Pod
			err := r.cached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: e.TargetRef.Name}, &pod)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, nil, fmt.Errorf("get cached Pod %s: %w", e.TargetRef.Name, err)
			}
			eps, err := r.danmEpsOfPod(ctx, namespace, pod.Name)
			if err != nil {
				return nil, nil, err
			}
			pods, all = append(pods, pod), append(all, eps...)
		}
	}
	return pods, all, nil
}

// danmEpsOfPod returns the cached DanmEps of a Pod name; nobody may change them.
func (r *Reconciler) danmEpsOfPod(ctx context.Context, namespace, pod string) ([]v1.DanmEp, error) {
	var list v1.DanmEpList
	if err := r.cached.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{byPod: podBucket(pod)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list cached DanmEps of Pod %s: %w", pod, err)
	}
	var eps []v1.DanmEp
	for i := range list.Items {
		if list.Items[i].Spec.Pod == pod {
			eps = append(eps, list.Items[i])
		}
	}
	return eps, nil
}

// cachedSlices returns the cached slices of ours that bear a Service's name.
func (r *Reconciler) cachedSlices(ctx context.Context, key client.ObjectKey) ([]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := r.cached.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingFields{byService: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list cached EndpointSlices: %w", err)
	}
	return list.Items, nil
}

// applyChanges makes the changes, what is new first: an endpoint that moves between slices
// is rather twice there than not at all.
func (r *Reconciler) applyChanges(ctx context.Context, c *svcwatcher.Changes) error {
	for i := range c.Create {
		if err := r.createSlice(ctx, &c.Create[i]); err != nil {
			return err
		}
	}
	for i := range c.Update {
		r.countWrite("endpointslices", "update")
		if err := r.direct.Update(ctx, c.Update[i].DeepCopy()); err != nil {
			return fmt.Errorf("update EndpointSlice %s: %w", c.Update[i].Name, err)
		}
	}
	for i := range c.Delete {
		r.countWrite("endpointslices", "delete")
		if err := r.deleteUnchanged(ctx, c.Delete[i].DeepCopy()); err != nil {
			return fmt.Errorf("delete EndpointSlice %s: %w", c.Delete[i].Name, err)
		}
	}
	return nil
}

// createSlice makes a slice. One of that name that is ours is not in the cache yet; one
// that is another's stays, and ours gets a name that nobody can take before.
func (r *Reconciler) createSlice(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	r.countWrite("endpointslices", "create")
	err := r.direct.Create(ctx, slice.DeepCopy())
	if apierrors.IsAlreadyExists(err) {
		there := &discoveryv1.EndpointSlice{}
		if err := r.direct.Get(ctx, client.ObjectKeyFromObject(slice), there); err != nil {
			return fmt.Errorf("get EndpointSlice %s: %w", slice.Name, err)
		}
		if there.Labels[discoveryv1.LabelManagedBy] == svcwatcher.ManagedBy {
			return apierrors.NewConflict(discoveryv1.Resource("endpointslices"), slice.Name, err)
		}
		other := slice.DeepCopy()
		other.Name, other.GenerateName = "", slice.Name+"-"
		err = r.direct.Create(ctx, other)
	}
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // in the latter case nobody needs it
	}
	return fmt.Errorf("create EndpointSlice %s: %w", slice.Name, err)
}

// reconcileLegacyEndpoints makes v1 Endpoints for a Service that asks for them, and takes them from one
// that does no longer.
func (r *Reconciler) reconcileLegacyEndpoints(ctx context.Context, svc *corev1.Service, groups []svcwatcher.Group) error {
	there, err := r.cachedLegacyEndpoints(ctx, client.ObjectKeyFromObject(svc))
	if err != nil {
		return err
	}
	if !svcwatcher.WantsLegacyEndpoints(svc) {
		return r.deleteLegacyEndpoints(ctx, there)
	}
	want := svcwatcher.LegacyEndpoints(svc, groups)
	if there == nil {
		return r.createLegacyEndpoints(ctx, svc, want)
	}
	if equality.Semantic.DeepEqual(want.Subsets, there.Subsets) && equality.Semantic.DeepEqual(want.Labels, there.Labels) &&
		equality.Semantic.DeepEqual(want.OwnerReferences, there.OwnerReferences) {
		return nil
	}
	want.UID, want.ResourceVersion = there.UID, there.ResourceVersion
	r.countWrite("endpoints", "update")
	if err := r.direct.Update(ctx, want); err != nil {
		return fmt.Errorf("update Endpoints: %w", err)
	}
	return nil
}

// createLegacyEndpoints makes Endpoints. They have the Service's name, so that others'
// cannot be avoided: they stay, and an Event says so. Ours are not in the cache yet.
func (r *Reconciler) createLegacyEndpoints(ctx context.Context, svc *corev1.Service, want *corev1.Endpoints) error {
	r.countWrite("endpoints", "create")
	err := r.direct.Create(ctx, want)
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if apierrors.IsAlreadyExists(err) {
		there := &corev1.Endpoints{}
		if err := r.direct.Get(ctx, client.ObjectKeyFromObject(want), there); err != nil {
			return fmt.Errorf("get Endpoints: %w", err)
		}
		if there.Labels[discoveryv1.LabelManagedBy] == svcwatcher.ManagedBy {
			return apierrors.NewConflict(corev1.Resource("endpoints"), want.Name, err)
		}
	}
	err = fmt.Errorf("create Endpoints: %w", err)
	r.recordRejectedWrite(svc, err)
	return err
}

// deleteLegacyEndpoints deletes Endpoints of ours, if there are any.
func (r *Reconciler) deleteLegacyEndpoints(ctx context.Context, there *corev1.Endpoints) error {
	if there == nil {
		return nil
	}
	r.countWrite("endpoints", "delete")
	if err := r.deleteUnchanged(ctx, there); err != nil {
		return fmt.Errorf("delete Endpoints: %w", err)
	}
	return nil
}

// cachedLegacyEndpoints returns the cached Endpoints of ours, or nil.
func (r *Reconciler) cachedLegacyEndpoints(ctx context.Context, key client.ObjectKey) (*corev1.Endpoints, error) {
	there := &corev1.Endpoints{}
	err := r.cached.Get(ctx, key, there)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get cached Endpoints: %w", err)
	}
	return there, nil
}

// deleteUnchanged removes an object as it was read, and no other of its name.
func (r *Reconciler) deleteUnchanged(ctx context.Context, obj client.Object) error {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	return client.IgnoreNotFound(r.direct.Delete(ctx, obj, client.Preconditions{UID: &uid, ResourceVersion: &version}))
}

func (r *Reconciler) countWrite(resource, verb string) {
	r.metrics.writes.WithLabelValues(resource, verb).Inc()
}

// deleteManagedObjects takes everything of ours from a Service that has none, or is none any more.
// The cache of a new leader may be older than what the former one has seen: so the
// Service itself is asked before.
func (r *Reconciler) deleteManagedObjects(ctx context.Context, key client.ObjectKey) error {
	existing, err := r.cachedSlices(ctx, key)
	if err != nil {
		return err
	}
	endpoints, err := r.cachedLegacyEndpoints(ctx, key)
	if err != nil || len(existing) == 0 && endpoints == nil {
		return err
	}
	if ours, err := r.isManaged(ctx, key); err != nil || ours {
		return err // the cache will say so too
	}
	if err := r.applyChanges(ctx, &svcwatcher.Changes{Delete: existing}); err != nil {
		return err
	}
	return r.deleteLegacyEndpoints(ctx, endpoints)
}

// isManaged asks the API server whether a Service is one that has, or keeps, something of
// ours. What lost the label that names its Service is no Service's.
func (r *Reconciler) isManaged(ctx context.Context, key client.ObjectKey) (bool, error) {
	if key.Name == "" {
		return false, nil
	}
	svc := &corev1.Service{}
	if err := r.direct.Get(ctx, key, svc); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("get Service: %w", err)
	}
	v := svcwatcher.Classify(svc).Class
	return v == svcwatcher.Managed || v == svcwatcher.Invalid, nil
}

// recordClassification says why a Service is not served.
func (r *Reconciler) recordClassification(svc *corev1.Service, j svcwatcher.Classification) {
	if j.Class == svcwatcher.Unmanaged {
		r.deduplicator.forget(client.ObjectKeyFromObject(svc)) // most Services are
		return
	}
	subjects := []string{subjectService, subjectWrite, subjectWithheld}
	if j.Request != nil {
		for _, ref := range j.Request.Networks {
			subjects = append(subjects, ref.String())
		}
	}
	r.deduplicator.retainSubjects(client.ObjectKeyFromObject(svc), subjects...)
	r.recordWarning(svc, subjectService, j.Reason, j.Message)
}

// recordNetworkState says that a network is of no use to a Service.
func (r *Reconciler) recordNetworkState(svc *corev1.Service, ref network.Ref, at networkState) {
	reason, message := "", ""
	switch {
	case !at.exists:
		reason, message = svcwatcher.ReasonNetworkNotFound, fmt.Sprintf("%s does not exist: no endpoint is on it until it does", ref)
	case !at.allowed:
		reason, message = svcwatcher.ReasonNetworkNotAllowed,
			fmt.Sprintf("%s is not for namespace %s: have the namespace added to its AllowedTenants, or name another network", ref, svc.Namespace)
	case at.Err != nil:
		reason, message = svcwatcher.ReasonNetworkInvalid, fmt.Sprintf("no endpoint is on it until it is mended: %v", at.Err)
	}
	r.recordWarning(svc, ref.String(), reason, message)
}

// recordWithheld says which addresses are not published, and why.
func (r *Reconciler) recordWithheld(svc *corev1.Service, all []svcwatcher.Withheld) {
	message := ""
	if len(all) > 0 {
		message = all[0].String()
	}
	if len(all) > 1 {
		message += fmt.Sprintf(" (and %d more)", len(all)-1)
	}
	r.recordWarning(svc, subjectWithheld, svcwatcher.ReasonAddressWithheld, message)
}

// recordRejectedWrite says what the API server did not take. That it was away, or that there
// is something newer, is no news.
func (r *Reconciler) recordRejectedWrite(svc *corev1.Service, err error) {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsAlreadyExists(err) {
		r.recordWarning(svc, subjectWrite, svcwatcher.ReasonEndpointsNotWritten, err.Error())
	}
}

// recordWarning makes an Event on a Service if it says something new about the subject.
func (r *Reconciler) recordWarning(svc *corev1.Service, subject, reason, message string) {
	if r.deduplicator.record(client.ObjectKeyFromObject(svc), subject, message) {
		r.cfg.Events.Event(svc, corev1.EventTypeWarning, reason, message)
	}
}

var _ reconcile.Reconciler = (*Reconciler)(nil)
