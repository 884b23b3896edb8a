// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/objects"
)

// evict removes the entries of departed lives from a network.
func (c *Controller) evict(ctx context.Context, r reading) error {
	over, err := c.confirm(ctx, c.departed.of(r.lives()))
	if err != nil || len(over) == 0 {
		return err
	}
	uids := map[string]string{}
	for _, l := range over {
		uids[l.name] = l.uid
	}
	freed, err := c.steward.Evict(ctx, r.key(), uids)
	if err != nil {
		return fmt.Errorf("free what nodes that are gone held of %s: %w", r.Ref, err)
	}
	c.metrics.evicted.Add(float64(freed))
	logr.FromContextOrDiscard(ctx).Info("Freed what nodes that are gone held", "nodes", uids, "freed", freed)
	return nil
}

// confirm returns those of lives that the API server, asked now, says are over: an
// older state of it may have been restored since, with these Nodes in it.
func (c *Controller) confirm(ctx context.Context, lives []life) ([]life, error) {
	var over []life
	for _, l := range lives {
		node := nodeMeta()
		err := c.direct.Get(ctx, client.ObjectKey{Name: l.name}, node)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get Node %s: %w", l.name, err)
		}
		if err != nil || string(node.UID) != l.uid {
			over = append(over, l)
		}
	}
	return over, nil
}

// removeEndpoints removes the DanmEps of a departed life.
func (c *Controller) removeEndpoints(ctx context.Context, l life, eps []*v1.DanmEp, known nodes) error {
	if len(eps) == 0 {
		return nil
	}
	if over, err := c.confirm(ctx, []life{l}); err != nil || len(over) == 0 {
		return err
	}
	var errs []error
	for _, ep := range eps {
		errs = append(errs, c.removeEndpoint(ctx, ep, known))
	}
	return errors.Join(errs...)
}

// removeEndpoint removes one DanmEp, unless it may be of a Pod that still runs.
func (c *Controller) removeEndpoint(ctx context.Context, cached *v1.DanmEp, known nodes) error {
	if _, back := known[cached.Spec.Host]; back {
		// The Node was registered anew. Where the machine was not off, kubelet
		// keeps its Pods, and their interfaces stay.
		if runs, err := c.hasPod(ctx, cached); runs || err != nil {
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
	if ep.UID != cached.UID || lifeOf(ep) != lifeOf(cached) {
		return nil
	}
	if _, err := objects.RemoveEndpoint(ctx, c.direct, ep); err != nil {
		return err
	}
	c.metrics.endpoints.Inc()
	logr.FromContextOrDiscard(ctx).Info("Removed a DanmEp whose node is gone", "danmep", key.String(), "node", cached.Spec.Host)
	return nil
}

// hasPod reports whether the Pod of a DanmEp is there. A static Pod's UID is in its
// mirror's annotation.
func (c *Controller) hasPod(ctx context.Context, ep *v1.DanmEp) (bool, error) {
	pod := podMeta()
	key := client.ObjectKey{Namespace: ep.Namespace, Name: ep.Spec.Pod}
	if err := c.direct.Get(ctx, key, pod); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("get Pod %s: %w", key, err)
	}
	return string(pod.UID) == ep.Spec.PodUID || pod.Annotations[corev1.MirrorPodAnnotationKey] == ep.Spec.PodUID, nil
}
