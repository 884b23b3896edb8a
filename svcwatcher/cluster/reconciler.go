// SPDX-License-Identifier: Apache-2.0

package cluster

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

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// Reconciler makes the slices of one Service at a time what they should be.
type Reconciler struct {
	cfg         Config
	cached      client.Reader
	direct      client.Client
	networks    *networks
	permissions *permissions
	metrics     *metrics
	told        *told
	stale       workqueue.TypedRateLimiter[reconcile.Request]
}

// Reconcile looks at one Service.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	after, err := r.look(ctx, req.NamespacedName)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // the caches will say so, too
		r.metrics.stale.Inc()
		return reconcile.Result{RequeueAfter: r.stale.When(req)}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("make the endpoints of Service %s: %w", req.NamespacedName, err)
	}
	r.stale.Forget(req)
	return reconcile.Result{RequeueAfter: after}, nil
}

// look compares what a Service has with what it should have, and says when to look again
// although nothing has changed; zero for never.
func (r *Reconciler) look(ctx context.Context, key client.ObjectKey) (time.Duration, error) {
	svc := &corev1.Service{}
	err := r.cached.Get(ctx, key, svc)
	if apierrors.IsNotFound(err) {
		r.told.forget(key)
		return 0, r.remove(ctx, key)
	}
	if err != nil {
		return 0, fmt.Errorf("get cached Service: %w", err)
	}
	judgement := svcwatcher.Judge(svc)
	r.tell(svc, judgement)
	switch judgement.Verdict {
	case svcwatcher.Served, svcwatcher.Broken:
		return r.serve(ctx, svc, judgement)
	default:
		return 0, r.remove(ctx, key)
	}
}

// serve writes what is missing.
func (r *Reconciler) serve(ctx context.Context, svc *corev1.Service, judgement svcwatcher.Judgement) (time.Duration, error) {
	existing, err := r.slices(ctx, client.ObjectKeyFromObject(svc))
	if err != nil {
		return 0, err
	}
	source, err := r.source(ctx, svc, judgement)
	if err != nil {
		return 0, err
	}
	if judgement.Verdict != svcwatcher.Served {
		source.Pods, source.DanmEps, err = r.podsOf(ctx, svc.Namespace, existing)
		if err != nil {
			return 0, err
		}
	}
	if source.Shared, err = r.permissions.of(ctx, source); err != nil {
		return 0, err
	}
	var want svcwatcher.Endpoints
	if judgement.Verdict == svcwatcher.Served {
		want = svcwatcher.Desired(source)
	} else {
		want.Groups = svcwatcher.Keep(source, existing)
	}
	r.tellWithheld(svc, want.Withheld)
	changes := svcwatcher.Plan(svc, want.Groups, existing)
	if err := r.write(ctx, &changes); err != nil {
		r.tellRefusal(svc, err)
		return 0, err
	}
	if err := r.legacy(ctx, svc, want.Groups); err != nil {
		return 0, err
	}
	r.warn(svc, subjectWrite, "", "") // what was refused is no more
	if len(want.Withheld) > 0 || len(source.Shared) > 0 {
		// Nothing is watched that says that another has given the address back, or that
		// a netadmin has changed clusterSubnets.
		return withheldAgain, nil
	}
	return 0, nil
}

// source reads from the caches what a Service's endpoints are made from, and tells
// what its networks are to it.
func (r *Reconciler) source(ctx context.Context, svc *corev1.Service, j svcwatcher.Judgement) (*svcwatcher.Source, error) {
	s := &svcwatcher.Source{
		Service: svc, Request: j.Request, Zone: func(node string) string { return r.zone(ctx, node) },
		Foreign: func(pod *corev1.Pod, a netip.Addr) bool { return r.foreign(ctx, pod, a) },
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
		at, err := r.networks.look(ctx, ref, svc.Namespace)
		if err != nil {
			return nil, err
		}
		if at.Network != nil && at.allowed {
			s.Networks[ref] = at.Network
		}
		r.tellStanding(svc, ref, at)
	}
	var pods corev1.PodList
	err := r.cached.List(ctx, &pods, client.InNamespace(svc.Namespace), client.MatchingFields{byLabel: pick(j.Request.Selector)},
		client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(j.Request.Selector)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list cached Pods: %w", err)
	}
	s.Pods = pods.Items
	for i := range s.Pods {
		eps, err := r.danmEps(ctx, svc.Namespace, s.Pods[i].Name)
		if err != nil {
			return nil, err
		}
		s.DanmEps = append(s.DanmEps, eps...)
	}
	return s, nil
}

// zone is a Node's, or nothing while there is no such Node.
func (r *Reconciler) zone(ctx context.Context, name string) string {
	node := nodeMeta()
	if err := r.cached.Get(ctx, client.ObjectKey{Name: name}, node, client.UnsafeDisableDeepCopy); err != nil {
		return ""
	}
	return node.Labels[corev1.LabelTopologyZone]
}

// foreign reports whether another living Pod has an address, and not on a network of ours:
// tenants may have the same subnets, but none has the Pods' own. It finds what no range
// says, with a CNI plugin that sets no podCIDRs.
func (r *Reconciler) foreign(ctx context.Context, pod *corev1.Pod, a netip.Addr) bool {
	var list corev1.PodList
	if err := r.cached.List(ctx, &list, client.MatchingFields{byIP: a.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.UID == pod.UID || other.Status.Phase == corev1.PodSucceeded || other.Status.Phase == corev1.PodFailed {
			continue
		}
		eps, err := r.danmEps(ctx, other.Namespace, other.Name)
		if err != nil || !slices.ContainsFunc(eps, func(ep v1.DanmEp) bool { return ep.Spec.PodUID == string(other.UID) && has(&ep, a) }) {
			return true
		}
	}
	return false
}

// has reports whether a DanmEp has an address.
func has(ep *v1.DanmEp, a netip.Addr) bool {
	for _, text := range []string{ep.Spec.Interface.Address, ep.Spec.Interface.AddressIPv6} {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Unmap() == a {
			return true
		}
	}
	return false
}

// podsOf reads the Pods that are behind slices now.
func (r *Reconciler) podsOf(ctx context.Context, namespace string, existing []discoveryv1.EndpointSlice) (pods []corev1.Pod, all []v1.DanmEp, err error) {
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
			eps, err := r.danmEps(ctx, namespace, pod.Name)
			if err != nil {
				return nil, nil, err
			}
			pods, all = append(pods, pod), append(all, eps...)
		}
	}
	return pods, all, nil
}

// danmEps returns the cached DanmEps of a Pod name; nobody may change them.
func (r *Reconciler) danmEps(ctx context.Context, namespace, pod string) ([]v1.DanmEp, error) {
	var list v1.DanmEpList
	if err := r.cached.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{byPod: bucket(pod)}, client.UnsafeDisableDeepCopy); err != nil {
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

// slices returns the cached slices of ours that bear a Service's name.
func (r *Reconciler) slices(ctx context.Context, key client.ObjectKey) ([]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := r.cached.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingFields{byService: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list cached EndpointSlices: %w", err)
	}
	return list.Items, nil
}

// write makes the changes, what is new first: an endpoint that moves between slices
// is rather twice there than not at all.
func (r *Reconciler) write(ctx context.Context, c *svcwatcher.Changes) error {
	for i := range c.Create {
		if err := r.create(ctx, &c.Create[i]); err != nil {
			return err
		}
	}
	for i := range c.Update {
		r.count("endpointslices", "update")
		if err := r.direct.Update(ctx, c.Update[i].DeepCopy()); err != nil {
			return fmt.Errorf("update EndpointSlice %s: %w", c.Update[i].Name, err)
		}
	}
	for i := range c.Delete {
		r.count("endpointslices", "delete")
		if err := r.delete(ctx, c.Delete[i].DeepCopy()); err != nil {
			return fmt.Errorf("delete EndpointSlice %s: %w", c.Delete[i].Name, err)
		}
	}
	return nil
}

// create makes a slice. One of that name that is ours is not in the cache yet; one
// that is another's stays, and ours gets a name that nobody can take before.
func (r *Reconciler) create(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	r.count("endpointslices", "create")
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

// legacy makes v1 Endpoints for a Service that asks for them, and takes them from one
// that does no longer.
func (r *Reconciler) legacy(ctx context.Context, svc *corev1.Service, groups []svcwatcher.Group) error {
	there, err := r.endpoints(ctx, client.ObjectKeyFromObject(svc))
	if err != nil {
		return err
	}
	if !svcwatcher.WantsLegacy(svc) {
		return r.withdraw(ctx, there)
	}
	want := svcwatcher.Legacy(svc, groups)
	if there == nil {
		return r.createEndpoints(ctx, svc, want)
	}
	if equality.Semantic.DeepEqual(want.Subsets, there.Subsets) && equality.Semantic.DeepEqual(want.Labels, there.Labels) &&
		equality.Semantic.DeepEqual(want.OwnerReferences, there.OwnerReferences) {
		return nil
	}
	want.UID, want.ResourceVersion = there.UID, there.ResourceVersion
	r.count("endpoints", "update")
	if err := r.direct.Update(ctx, want); err != nil {
		return fmt.Errorf("update Endpoints: %w", err)
	}
	return nil
}

// createEndpoints makes Endpoints. They have the Service's name, so that others'
// cannot be avoided: they stay, and an Event says so. Ours are not in the cache yet.
func (r *Reconciler) createEndpoints(ctx context.Context, svc *corev1.Service, want *corev1.Endpoints) error {
	r.count("endpoints", "create")
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
	r.tellRefusal(svc, err)
	return err
}

// withdraw deletes Endpoints of ours, if there are any.
func (r *Reconciler) withdraw(ctx context.Context, there *corev1.Endpoints) error {
	if there == nil {
		return nil
	}
	r.count("endpoints", "delete")
	if err := r.delete(ctx, there); err != nil {
		return fmt.Errorf("delete Endpoints: %w", err)
	}
	return nil
}

// endpoints returns the cached Endpoints of ours, or nil.
func (r *Reconciler) endpoints(ctx context.Context, key client.ObjectKey) (*corev1.Endpoints, error) {
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

// delete removes an object as it was read, and no other of its name.
func (r *Reconciler) delete(ctx context.Context, obj client.Object) error {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	return client.IgnoreNotFound(r.direct.Delete(ctx, obj, client.Preconditions{UID: &uid, ResourceVersion: &version}))
}

func (r *Reconciler) count(resource, verb string) {
	r.metrics.writes.WithLabelValues(resource, verb).Inc()
}

// remove takes everything of ours from a Service that has none, or is none any more.
// The cache of a new leader may be older than what the former one has seen: so the
// Service itself is asked before.
func (r *Reconciler) remove(ctx context.Context, key client.ObjectKey) error {
	existing, err := r.slices(ctx, key)
	if err != nil {
		return err
	}
	endpoints, err := r.endpoints(ctx, key)
	if err != nil || len(existing) == 0 && endpoints == nil {
		return err
	}
	if ours, err := r.ours(ctx, key); err != nil || ours {
		return err // the cache will say so too
	}
	if err := r.write(ctx, &svcwatcher.Changes{Delete: existing}); err != nil {
		return err
	}
	return r.withdraw(ctx, endpoints)
}

// ours asks the API server whether a Service is one that has, or keeps, something of
// ours. What lost the label that names its Service is no Service's.
func (r *Reconciler) ours(ctx context.Context, key client.ObjectKey) (bool, error) {
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
	v := svcwatcher.Judge(svc).Verdict
	return v == svcwatcher.Served || v == svcwatcher.Broken, nil
}

// tell says why a Service is not served.
func (r *Reconciler) tell(svc *corev1.Service, j svcwatcher.Judgement) {
	if j.Verdict == svcwatcher.Foreign {
		r.told.forget(client.ObjectKeyFromObject(svc)) // most Services are
		return
	}
	subjects := []string{subjectService, subjectWrite, subjectWithheld}
	if j.Request != nil {
		for _, ref := range j.Request.Networks {
			subjects = append(subjects, ref.String())
		}
	}
	r.told.only(client.ObjectKeyFromObject(svc), subjects...)
	r.warn(svc, subjectService, j.Reason, j.Message)
}

// tellStanding says that a network is of no use to a Service.
func (r *Reconciler) tellStanding(svc *corev1.Service, ref network.Ref, at standing) {
	reason, message := "", ""
	switch {
	case !at.exists:
		reason, message = svcwatcher.ReasonNoNetwork, fmt.Sprintf("%s does not exist: no endpoint is on it until it does", ref)
	case !at.allowed:
		reason, message = svcwatcher.ReasonNotAllowed,
			fmt.Sprintf("%s is not for namespace %s: have the namespace added to its AllowedTenants, or name another network", ref, svc.Namespace)
	case at.Err != nil:
		reason, message = svcwatcher.ReasonNetworkInvalid, fmt.Sprintf("no endpoint is on it until it is mended: %v", at.Err)
	}
	r.warn(svc, ref.String(), reason, message)
}

// tellWithheld says which addresses are not published, and why.
func (r *Reconciler) tellWithheld(svc *corev1.Service, all []svcwatcher.Withheld) {
	message := ""
	if len(all) > 0 {
		message = all[0].String()
	}
	if len(all) > 1 {
		message += fmt.Sprintf(" (and %d more)", len(all)-1)
	}
	r.warn(svc, subjectWithheld, svcwatcher.ReasonWithheld, message)
}

// tellRefusal says what the API server did not take. That it was away, or that there
// is something newer, is no news.
func (r *Reconciler) tellRefusal(svc *corev1.Service, err error) {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsAlreadyExists(err) {
		r.warn(svc, subjectWrite, svcwatcher.ReasonNotWritten, err.Error())
	}
}

// warn makes an Event on a Service if it says something new about the subject.
func (r *Reconciler) warn(svc *corev1.Service, subject, reason, message string) {
	if r.told.news(client.ObjectKeyFromObject(svc), subject, message) {
		r.cfg.Events.Event(svc, corev1.EventTypeWarning, reason, message)
	}
}

var _ reconcile.Reconciler = (*Reconciler)(nil)
