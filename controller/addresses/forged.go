// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/objects"
)

// removeForged removes the DanmEps that name a Pod of another node: policies let a node
// write any DanmEp of its own, and cannot read Pods. That a Pod is not there proves nothing,
// since its sandbox may outlive it; but where it runs never changes. A DanmEp whose Host is
// no Node is not forged: a node writes the name of its Node, and DANM wrote that of the
// machine. What such a DanmEp covered is freed like all that nobody covers.
func (s *sweeper) removeForged(ctx context.Context, eps []v1.DanmEp, known nodes) error {
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
		if pod := byUID[eps[i].Spec.PodUID]; pod != nil && elsewhere(pod, &eps[i]) {
			errs = append(errs, s.removeForgedEndpoint(ctx, &eps[i], client.ObjectKeyFromObject(pod)))
		}
	}
	return errors.Join(errs...)
}

// elsewhere reports whether a Pod runs on another node than the one that made the DanmEp.
func elsewhere(pod *corev1.Pod, ep *v1.DanmEp) bool {
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
	if ep.UID != cached.UID || !elsewhere(pod, ep) {
		return nil
	}
	if _, err := objects.RemoveEndpoint(ctx, c.direct, ep); err != nil {
		return err
	}
	c.metrics.forged.Inc()
	logr.FromContextOrDiscard(ctx).Info("Removed a DanmEp that names a Pod of another node: its node may be compromised",
		"danmep", key.String(), "node", ep.Spec.Host, "pod", of.String(), "podNode", pod.Spec.NodeName)
	c.events.Event(pod, corev1.EventTypeWarning, v1.ReasonForgedDanmEp, fmt.Sprintf(
		"node %s made DanmEp %s for this Pod, which runs on node %s: it was removed; look whether %s is compromised",
		ep.Spec.Host, ep.Name, pod.Spec.NodeName, ep.Spec.Host))
	return nil
}
