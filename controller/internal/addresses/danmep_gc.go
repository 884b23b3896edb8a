// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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

// danmEpGC removes DanmEps whose Node is gone and forged ones, and moves those that block the
// deletion of a namespace. Only the sweeper calls it.
type danmEpGC struct {
	cluster *clusterReader
	client  client.Client
	events  EventRecorder
	metrics *Metrics
	now     func() time.Time
	// namespace is the controller's own, where DanmEps are moved to; none is when it is empty.
	namespace string
	// stuckTimeout is Config.StuckDeletionTimeout.
	stuckTimeout time.Duration

	// reportedBlocking are the DanmEps that have an Event because they block a namespace.
	reportedBlocking map[types.UID]bool
}

// removeOfNode removes the DanmEps of an incarnation that is gone, after a read from the API server.
func (g *danmEpGC) removeOfNode(ctx context.Context, l incarnation, eps []*v1.DanmEp, nodes nodesByName) error {
	if len(eps) == 0 {
		return nil
	}
	if gone, err := g.cluster.confirmGone(ctx, []incarnation{l}); err != nil || len(gone) == 0 {
		return err
	}
	var errs []error
	for _, ep := range eps {
		errs = append(errs, g.remove(ctx, ep, nodes))
	}
	return errors.Join(errs...)
}

// remove removes one DanmEp, unless its Pod may still run.
func (g *danmEpGC) remove(ctx context.Context, cached *v1.DanmEp, nodes nodesByName) error {
	if _, back := nodes[cached.Spec.Host]; back {
		// The Node was registered again. If the machine was not off, kubelet keeps its Pods,
		// and their interfaces stay.
		if pod, err := kube.PodOf(ctx, g.client, cached); pod != nil || err != nil {
			return err
		}
	}
	ep := &v1.DanmEp{}
	key := client.ObjectKeyFromObject(cached)
	if err := g.client.Get(ctx, key, ep); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("get DanmEp %s: %w", key, err)
	}
	if ep.UID != cached.UID || incarnationOf(ep) != incarnationOf(cached) {
		return nil
	}
	if _, err := kube.RemoveEndpoint(ctx, g.client, ep); err != nil {
		return err
	}
	g.metrics.removedEndpoints.Inc()
	logr.FromContextOrDiscard(ctx).Info("Removed a DanmEp whose node is gone", "danmep", key.String(), "node", cached.Spec.Host)
	return nil
}

// removeForged removes the DanmEps that name a Pod of another node. Admission policies let a node
// write any DanmEp with its own name, because they cannot read Pods. A missing Pod proves nothing,
// since its sandbox may still run, but the node of an existing Pod never changes. A DanmEp whose
// Host is no Node is not forged: a node of ours writes its Node's name, and DANM wrote the
// machine's. The audit frees the addresses that only a forged DanmEp covered.
func (g *danmEpGC) removeForged(ctx context.Context, eps []v1.DanmEp, nodes nodesByName) error {
	pods := &corev1.PodList{}
	if err := g.cluster.cached.List(ctx, pods, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list cached Pods: %w", err)
	}
	byUID := make(map[string]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		byUID[string(pods.Items[i].UID)] = &pods.Items[i]
	}
	var errs []error
	for i := range eps {
		if _, ok := nodes[eps[i].Spec.Host]; !ok {
			continue
		}
		if pod := byUID[eps[i].Spec.PodUID]; pod != nil && runsElsewhere(pod, &eps[i]) {
			errs = append(errs, g.removeForgedEndpoint(ctx, &eps[i], client.ObjectKeyFromObject(pod)))
		}
	}
	return errors.Join(errs...)
}

// runsElsewhere reports whether a Pod runs on another node than the one that made the DanmEp.
func runsElsewhere(pod *corev1.Pod, ep *v1.DanmEp) bool {
	return pod.UID != "" && pod.UID == types.UID(ep.Spec.PodUID) && pod.Spec.NodeName != "" && pod.Spec.NodeName != ep.Spec.Host
}

// removeForgedEndpoint removes a DanmEp if a read from the API server confirms that it is forged,
// and reports it on the Pod.
func (g *danmEpGC) removeForgedEndpoint(ctx context.Context, cached *v1.DanmEp, podKey client.ObjectKey) error {
	pod, ep, key := &corev1.Pod{}, &v1.DanmEp{}, client.ObjectKeyFromObject(cached)
	if err := g.client.Get(ctx, podKey, pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := g.client.Get(ctx, key, ep); err != nil {
		return client.IgnoreNotFound(err)
	}
	if ep.UID != cached.UID || !runsElsewhere(pod, ep) {
		return nil
	}
	if _, err := kube.RemoveEndpoint(ctx, g.client, ep); err != nil {
		return err
	}
	g.metrics.forgedEndpoints.Inc()
	logr.FromContextOrDiscard(ctx).Info("Removed a DanmEp that names a Pod of another node: its node may be compromised",
		"danmep", key.String(), "node", ep.Spec.Host, "pod", podKey.String(), "podNode", pod.Spec.NodeName)
	g.events.Event(pod, corev1.EventTypeWarning, v1.ReasonForgedDanmEp, fmt.Sprintf(
		"node %s made DanmEp %s for this Pod, which runs on node %s: the controller removed it. Check node %s for a compromise",
		ep.Spec.Host, ep.Name, pod.Spec.NodeName, ep.Spec.Host))
	return nil
}

// moveStuckEndpoints moves DanmEps without a Pod that block the deletion of their namespace into
// the controller's own namespace. Such a DanmEp may be forged, or belong to a sandbox that still
// runs on a node that is cut off; only the node can tell. A DanmEp with the same spec is therefore
// created in the controller's namespace first: it covers the address, so that no other Pod gets it.
// The node removes that DanmEp as it would have removed this one, and so does the deletion of the
// Node.
func (g *danmEpGC) moveStuckEndpoints(ctx context.Context, eps []v1.DanmEp, nodes nodesByName) error {
	if g.namespace == "" {
		return nil
	}
	terminating, blocking := map[string]bool{}, map[types.UID]bool{}
	var errs []error
	for i := range eps {
		ep := &eps[i]
		if ep.DeletionTimestamp == nil || g.now().Sub(ep.DeletionTimestamp.Time) < g.stuckTimeout || ep.Namespace == g.namespace {
			continue
		}
		node, ok := nodes[ep.Spec.Host]
		if !ok {
			continue // removeOfNode removes the DanmEps of a Node that is gone
		}
		isTerminating, known := terminating[ep.Namespace]
		if !known {
			var err error
			if isTerminating, err = g.namespaceTerminating(ctx, ep.Namespace); err != nil {
				errs = append(errs, err)
				continue
			}
			terminating[ep.Namespace] = isTerminating
		}
		if isTerminating {
			stays, err := g.moveEndpoint(ctx, ep, node)
			if errs = append(errs, err); stays {
				g.reportBlocking(ctx, ep, node)
				blocking[ep.UID] = true
			}
		}
	}
	g.reportedBlocking = blocking
	g.metrics.blockingEndpoints.Set(float64(len(blocking)))
	return errors.Join(errs...)
}

// namespaceTerminating reports whether a namespace is being deleted. Nothing can be created in it
// then, not even a Pod.
func (g *danmEpGC) namespaceTerminating(ctx context.Context, name string) (bool, error) {
	ns := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	if err := g.client.Get(ctx, client.ObjectKey{Name: name}, ns); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("get Namespace %s: %w", name, err)
	}
	return ns.DeletionTimestamp != nil, nil
}

// moveEndpoint moves a DanmEp if a read from the API server, not the cache, shows that its Pod is
// gone. It reports that the DanmEp stays if it must be in the namespace of its network.
func (g *danmEpGC) moveEndpoint(ctx context.Context, cached *v1.DanmEp, node nodeInfo) (stays bool, err error) {
	if pod, err := kube.PodOf(ctx, g.client, cached); pod != nil || err != nil {
		return false, err
	}
	ep, key := &v1.DanmEp{}, client.ObjectKeyFromObject(cached)
	if err := g.client.Get(ctx, key, ep); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if ep.UID != cached.UID || ep.Spec.Host != cached.Spec.Host || ep.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(ep, v1.NodeFinalizer) {
		return false, nil
	}
	if movable, err := g.canMove(ctx, ep); !movable || err != nil {
		return err == nil, err
	}
	moved, err := g.createMoved(ctx, ep, node)
	if err != nil {
		return false, err
	}
	removed, err := kube.RemoveEndpoint(ctx, g.client, ep)
	if err != nil || !removed {
		// If the removal failed, the next sweep finds the DanmEp that was created. If this DanmEp
		// is already gone, its node was faster and removes the new one too, or this is the retry of
		// a patch whose reply was lost: in both cases the new one must stay.
		return false, err
	}
	g.metrics.movedEndpoints.Inc()
	logr.FromContextOrDiscard(ctx).Info("Moved a DanmEp whose Pod is gone out of a namespace in deletion",
		"danmep", key.String(), "to", client.ObjectKeyFromObject(moved).String(), "node", ep.Spec.Host)
	g.events.Event(nodeReference(ep, node), corev1.EventTypeWarning, v1.ReasonDanmEpMoved, fmt.Sprintf(
		"DanmEp %s blocked the deletion of its namespace after Pod %s was gone. The controller moved it to DanmEp %s/%s. Its addresses stay in use until the node ends the sandbox. "+
			"If no sandbox %s runs on the node, check the node for a compromise", key, ep.Spec.Pod, moved.Namespace, moved.Name, ep.Spec.CID))
	return false, nil
}

// canMove reports whether a DanmEp covers in another namespace what it covers in its own. It does
// for ClusterNetworks. A DanmEp of another kind of network counts in the network's namespace only.
// A TenantNetwork that is gone keeps its VLAN or VXLAN reserved for a DanmEp in any namespace
// (package webhook).
func (g *danmEpGC) canMove(ctx context.Context, ep *v1.DanmEp) (bool, error) {
	key := kube.NetworkKeyOf(ep)
	if key.Ref.Kind == v1.KindClusterNetwork || !slices.Contains(kube.NetworkKinds(), key.Ref.Kind) {
		return true, nil
	}
	net := kube.PartialMetadata(key.Ref.Kind)
	if err := g.client.Get(ctx, kube.ObjectKey(key.Ref), net); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("get %s: %w", key.Ref, err)
	}
	return net.UID == "" || key.UID != "" && string(net.UID) != key.UID, nil
}

// createMoved returns the DanmEp in the controller's namespace that has the spec of ep, and creates
// it unless an earlier attempt did.
func (g *danmEpGC) createMoved(ctx context.Context, ep *v1.DanmEp, node nodeInfo) (*v1.DanmEp, error) {
	moved := &v1.DanmEp{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: g.namespace, GenerateName: "moved-", Finalizers: []string{v1.NodeFinalizer},
			Annotations: map[string]string{v1.MovedFromAnnotation: client.ObjectKeyFromObject(ep).String()},
		},
		Spec: *ep.Spec.DeepCopy(),
	}
	if moved.Spec.HostUID == "" {
		moved.Spec.HostUID = node.uid // else the deletion of the Node would not remove it
	}
	list := &v1.DanmEpList{}
	if err := g.client.List(ctx, list, client.InNamespace(g.namespace), client.MatchingFields{"spec.Host": ep.Spec.Host}); err != nil {
		return nil, fmt.Errorf("list DanmEps of node %s in namespace %s: %w", ep.Spec.Host, g.namespace, err)
	}
	for i := range list.Items {
		earlier := &list.Items[i]
		if earlier.DeletionTimestamp == nil && controllerutil.ContainsFinalizer(earlier, v1.NodeFinalizer) &&
			earlier.Annotations[v1.MovedFromAnnotation] == moved.Annotations[v1.MovedFromAnnotation] && equality.Semantic.DeepEqual(earlier.Spec, moved.Spec) {
			return earlier, nil
		}
	}
	if err := g.client.Create(ctx, moved); err != nil {
		return nil, fmt.Errorf("move DanmEp %s to namespace %s: %w", client.ObjectKeyFromObject(ep), g.namespace, err)
	}
	return moved, nil
}

// reportBlocking reports once that a DanmEp blocks the deletion of its namespace.
func (g *danmEpGC) reportBlocking(ctx context.Context, ep *v1.DanmEp, node nodeInfo) {
	if g.reportedBlocking[ep.UID] {
		return
	}
	key := client.ObjectKeyFromObject(ep)
	logr.FromContextOrDiscard(ctx).Info("Found a DanmEp without a Pod that blocks the deletion of its namespace", "danmep", key.String(), "node", ep.Spec.Host)
	g.events.Event(nodeReference(ep, node), corev1.EventTypeWarning, v1.ReasonDanmEpOrphaned, fmt.Sprintf(
		"DanmEp %s blocks the deletion of its namespace, and Pod %s is gone: this node must end sandbox %s. "+
			"If it does not, check the node for a compromise. To free the namespace, power the machine off and delete its Node", key, ep.Spec.Pod, ep.Spec.CID))
}

// nodeReference refers to the Node of a DanmEp.
func nodeReference(ep *v1.DanmEp, node nodeInfo) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: ep.Spec.Host, UID: types.UID(node.uid)}
}
