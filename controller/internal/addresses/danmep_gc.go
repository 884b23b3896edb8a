// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
)

// removeEndpoints removes the DanmEps of a departed life.
func (c *Controller) removeEndpoints(ctx context.Context, l incarnation, eps []*v1.DanmEp, known nodesByName) error {
	if len(eps) == 0 {
		return nil
	}
	if over, err := c.confirmGone(ctx, []incarnation{l}); err != nil || len(over) == 0 {
		return err
	}
	var errs []error
	for _, ep := range eps {
		errs = append(errs, c.removeEndpoint(ctx, ep, known))
	}
	return errors.Join(errs...)
}

// removeEndpoint removes one DanmEp, unless it may be of a Pod that still runs.
func (c *Controller) removeEndpoint(ctx context.Context, cached *v1.DanmEp, known nodesByName) error {
	if _, back := known[cached.Spec.Host]; back {
		// The Node was registered anew. Where the machine was not off, kubelet
		// keeps its Pods, and their interfaces stay.
		if runs, err := c.podExists(ctx, cached); runs || err != nil {
			return err
		}
	}
	ep := &v1.DanmEp{}
	key := client.ObjectKeyFromObject(cached)
	if err := c.direct.Get(ctx, key, ep); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("get DanmEp %s: %w", key, err)
	}
	if ep.UID != cached.UID || incarnationOf(ep) != incarnationOf(cached) {
		return nil
	}
	if _, err := kube.RemoveEndpoint(ctx, c.direct, ep); err != nil {
		return err
	}
	c.metrics.removedEndpoints.Inc()
	logr.FromContextOrDiscard(ctx).Info("Removed a DanmEp whose node is gone", "danmep", key.String(), "node", cached.Spec.Host)
	return nil
}

// podExists reports whether the Pod of a DanmEp is there. A static Pod's UID is in its
// mirror's annotation.
func (c *Controller) podExists(ctx context.Context, ep *v1.DanmEp) (bool, error) {
	pod := emptyPodMetadata()
	key := client.ObjectKey{Namespace: ep.Namespace, Name: ep.Spec.Pod}
	if err := c.direct.Get(ctx, key, pod); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("get Pod %s: %w", key, err)
	}
	return string(pod.UID) == ep.Spec.PodUID || pod.Annotations[corev1.MirrorPodAnnotationKey] == ep.Spec.PodUID, nil
}

// emptyPodMetadata is an empty Pod as metadata.
func emptyPodMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
}

// removeForged removes the DanmEps that name a Pod of another node: policies let a node
// write any DanmEp of its own, and cannot read Pods. That a Pod is not there proves nothing,
// since its sandbox may outlive it; but where it runs never changes. A DanmEp whose Host is
// no Node is not forged: a node writes the name of its Node, and DANM wrote that of the
// machine. What such a DanmEp covered is freed like all that nobody covers.
func (s *sweeper) removeForged(ctx context.Context, eps []v1.DanmEp, known nodesByName) error {
	pods := &corev1.PodList{}
	if err := s.cached.List(ctx, pods, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list cached Pods: %w", err)
	}
	byUID := make(map[string]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		byUID[string(pods.Items[i].UID)] = &pods.Items[i]
	}
	var errs []error
	for i := range eps {
		if _, ok := known[eps[i].Spec.Host]; !ok {
			continue
		}
		if pod := byUID[eps[i].Spec.PodUID]; pod != nil && runsElsewhere(pod, &eps[i]) {
			errs = append(errs, s.removeForgedEndpoint(ctx, &eps[i], client.ObjectKeyFromObject(pod)))
		}
	}
	return errors.Join(errs...)
}

// runsElsewhere reports whether a Pod runs on another node than the one that made the DanmEp.
func runsElsewhere(pod *corev1.Pod, ep *v1.DanmEp) bool {
	return pod.UID != "" && pod.UID == types.UID(ep.Spec.PodUID) && pod.Spec.NodeName != "" && pod.Spec.NodeName != ep.Spec.Host
}

// removeForgedEndpoint removes a DanmEp if the API server, asked now, says that it is
// forged, and reports it on the Pod.
func (c *Controller) removeForgedEndpoint(ctx context.Context, cached *v1.DanmEp, of client.ObjectKey) error {
	pod, ep, key := &corev1.Pod{}, &v1.DanmEp{}, client.ObjectKeyFromObject(cached)
	if err := c.direct.Get(ctx, of, pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := c.direct.Get(ctx, key, ep); err != nil {
		return client.IgnoreNotFound(err)
	}
	if ep.UID != cached.UID || !runsElsewhere(pod, ep) {
		return nil
	}
	if _, err := kube.RemoveEndpoint(ctx, c.direct, ep); err != nil {
		return err
	}
	c.metrics.forgedEndpoints.Inc()
	logr.FromContextOrDiscard(ctx).Info("Removed a DanmEp that names a Pod of another node: its node may be compromised",
		"danmep", key.String(), "node", ep.Spec.Host, "pod", of.String(), "podNode", pod.Spec.NodeName)
	c.events.Event(pod, corev1.EventTypeWarning, v1.ReasonForgedDanmEp, fmt.Sprintf(
		"node %s made DanmEp %s for this Pod, which runs on node %s: it was removed; look whether %s is compromised",
		ep.Spec.Host, ep.Name, pod.Spec.NodeName, ep.Spec.Host))
	return nil
}

// moveStuckEndpoints moves the DanmEps without a Pod that keep a namespace from being deleted into
// the controller's own namespace. Such a DanmEp may be forged, or of a sandbox that runs on a
// node that is cut off: only the node knows. So a DanmEp with the same spec is made in the
// controller's namespace first, and covers the address: no other Pod gets it. The node ends that
// DanmEp as it would have ended this one; the deletion of its Node ends it, too.
func (s *sweeper) moveStuckEndpoints(ctx context.Context, eps []v1.DanmEp, known nodesByName) error {
	if s.cfg.Namespace == "" {
		return nil
	}
	terminating, blocking := map[string]bool{}, map[types.UID]bool{}
	var errs []error
	for i := range eps {
		ep := &eps[i]
		if ep.DeletionTimestamp == nil || s.since(ep.DeletionTimestamp.Time) < s.cfg.StuckDeletionTimeout || ep.Namespace == s.cfg.Namespace {
			continue
		}
		node, ok := known[ep.Spec.Host]
		if !ok {
			continue // the Node is gone, and what it had goes
		}
		ends, asked := terminating[ep.Namespace]
		if !asked {
			var err error
			if ends, err = s.namespaceTerminating(ctx, ep.Namespace); err != nil {
				errs = append(errs, err)
				continue
			}
			terminating[ep.Namespace] = ends
		}
		if ends {
			stays, err := s.moveEndpoint(ctx, ep, node)
			if errs = append(errs, err); stays {
				s.reportBlocking(ctx, ep, node)
				blocking[ep.UID] = true
			}
		}
	}
	s.reportedBlocking = blocking
	s.metrics.blockingEndpoints.Set(float64(len(blocking)))
	return errors.Join(errs...)
}

// namespaceTerminating reports whether a namespace is being deleted: nothing can be created in it any
// more, no Pod either.
func (c *Controller) namespaceTerminating(ctx context.Context, name string) (bool, error) {
	ns := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	if err := c.direct.Get(ctx, client.ObjectKey{Name: name}, ns); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("get Namespace %s: %w", name, err)
	}
	return ns.DeletionTimestamp != nil, nil
}

// moveEndpoint moves a DanmEp if a read from the API server, not the cache, shows that its Pod is gone. It
// reports that the DanmEp stays if it has to be where its network is.
func (c *Controller) moveEndpoint(ctx context.Context, cached *v1.DanmEp, of nodeInfo) (stays bool, err error) {
	if runs, err := c.podExists(ctx, cached); runs || err != nil {
		return false, err
	}
	ep, key := &v1.DanmEp{}, client.ObjectKeyFromObject(cached)
	if err := c.direct.Get(ctx, key, ep); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if ep.UID != cached.UID || ep.Spec.Host != cached.Spec.Host || ep.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(ep, v1.NodeFinalizer) {
		return false, nil
	}
	if free, err := c.canMove(ctx, ep); !free || err != nil {
		return err == nil, err
	}
	moved, err := c.createMoved(ctx, ep, of)
	if err != nil {
		return false, err
	}
	removed, err := kube.RemoveEndpoint(ctx, c.direct, ep)
	if err != nil || !removed {
		// The next look finds the one that was made. Where the DanmEp is gone, its node was
		// faster and removes that one, or this is the second try of a patch whose answer was
		// lost: it must stay.
		return false, err
	}
	c.metrics.movedEndpoints.Inc()
	logr.FromContextOrDiscard(ctx).Info("Moved a DanmEp whose Pod is gone out of a namespace in deletion",
		"danmep", key.String(), "to", client.ObjectKeyFromObject(moved).String(), "node", ep.Spec.Host)
	c.events.Event(nodeReference(ep, of), corev1.EventTypeWarning, v1.ReasonDanmEpMoved, fmt.Sprintf(
		"DanmEp %s kept its namespace from being deleted, and Pod %s is gone: it is DanmEp %s/%s now, and its addresses stay in use until the node ends its sandbox. "+
			"If no sandbox %s runs on the node, check whether the node was taken over", key, ep.Spec.Pod, moved.Namespace, moved.Name, ep.Spec.CID))
	return false, nil
}

// canMove reports whether a DanmEp covers in another namespace what it covers in its own.
// It does for ClusterNetworks. To others it counts in their namespace only. Of a TenantNetwork
// that is gone it keeps the VLAN or VXLAN from anywhere (package webhook).
func (c *Controller) canMove(ctx context.Context, ep *v1.DanmEp) (bool, error) {
	key := kube.NetworkKeyOf(ep)
	if key.Ref.Kind == v1.KindClusterNetwork || !slices.Contains(kube.NetworkKinds(), key.Ref.Kind) {
		return true, nil
	}
	net := kube.PartialMetadata(key.Ref.Kind)
	if err := c.direct.Get(ctx, kube.ObjectKey(key.Ref), net); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("get %s: %w", key.Ref, err)
	}
	return net.UID == "" || key.UID != "" && string(net.UID) != key.UID, nil
}

// createMoved returns the DanmEp in the controller's namespace with the same spec as one that
// is to go, and makes it if no earlier attempt did.
func (c *Controller) createMoved(ctx context.Context, ep *v1.DanmEp, of nodeInfo) (*v1.DanmEp, error) {
	moved := &v1.DanmEp{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.cfg.Namespace, GenerateName: "moved-", Finalizers: []string{v1.NodeFinalizer},
			Annotations: map[string]string{v1.MovedFromAnnotation: client.ObjectKeyFromObject(ep).String()},
		},
		Spec: *ep.Spec.DeepCopy(),
	}
	if moved.Spec.HostUID == "" {
		moved.Spec.HostUID = of.uid // else it would not go with the Node
	}
	list := &v1.DanmEpList{}
	if err := c.direct.List(ctx, list, client.InNamespace(c.cfg.Namespace), client.MatchingFields{"spec.Host": ep.Spec.Host}); err != nil {
		return nil, fmt.Errorf("list DanmEps of node %s in namespace %s: %w", ep.Spec.Host, c.cfg.Namespace, err)
	}
	for i := range list.Items {
		made := &list.Items[i]
		if made.DeletionTimestamp == nil && controllerutil.ContainsFinalizer(made, v1.NodeFinalizer) &&
			made.Annotations[v1.MovedFromAnnotation] == moved.Annotations[v1.MovedFromAnnotation] && equality.Semantic.DeepEqual(made.Spec, moved.Spec) {
			return made, nil
		}
	}
	if err := c.direct.Create(ctx, moved); err != nil {
		return nil, fmt.Errorf("move DanmEp %s to namespace %s: %w", client.ObjectKeyFromObject(ep), c.cfg.Namespace, err)
	}
	return moved, nil
}

// reportBlocking reports once that a DanmEp keeps its namespace.
func (s *sweeper) reportBlocking(ctx context.Context, ep *v1.DanmEp, of nodeInfo) {
	if s.reportedBlocking[ep.UID] {
		return
	}
	key := client.ObjectKeyFromObject(ep)
	logr.FromContextOrDiscard(ctx).Info("A DanmEp whose Pod is gone keeps its namespace from being deleted", "danmep", key.String(), "node", ep.Spec.Host)
	s.events.Event(nodeReference(ep, of), corev1.EventTypeWarning, v1.ReasonDanmEpOrphaned, fmt.Sprintf(
		"DanmEp %s keeps its namespace from being deleted, and Pod %s is gone: this node has to end sandbox %s. "+
			"If it does not, check whether the node was taken over; to free the namespace, power the machine off and delete its Node", key, ep.Spec.Pod, ep.Spec.CID))
}

// nodeReference refers to the Node of a DanmEp.
func nodeReference(ep *v1.DanmEp, of nodeInfo) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: ep.Spec.Host, UID: types.UID(of.uid)}
}
