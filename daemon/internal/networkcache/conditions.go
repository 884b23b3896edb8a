// SPDX-License-Identifier: Apache-2.0

package networkcache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// conditionJitter spreads the nodes in time, so that one node writes the condition and the
// others find it written.
const conditionJitter = 5 * time.Second

// Conditions writes the condition Ready of invalid networks. The API server rejects most
// invalid networks; others were stored before the rule existed.
type Conditions struct {
	client client.Client
	queue  workqueue.TypedRateLimitingInterface[network.Ref]
}

// NewConditions returns Conditions that write while Run runs.
func NewConditions(c client.Client) *Conditions {
	return &Conditions{client: c, queue: kubeclient.NewQueue[network.Ref]()}
}

// Observe queues a network whose condition is not current. It is a ReadFunc.
func (c *Conditions) Observe(obj client.Object, _ *network.Network, err error) {
	if kind, ok := kube.NetworkKindOf(obj); ok && !conditionIsCurrent(obj, err) {
		c.queue.AddAfter(kube.NetworkRefOf(kind, obj), rand.N(conditionJitter))
	}
}

// Run writes conditions until ctx ends.
func (c *Conditions) Run(ctx context.Context) error {
	kubeclient.RunWorkers(ctx, c.queue, 1, c.sync)
	return nil
}

// sync writes the condition of one network if it is not current.
func (c *Conditions) sync(ctx context.Context, ref network.Ref) error {
	ctx, cancel := context.WithTimeout(ctx, kubeclient.RequestTimeout)
	defer cancel()
	read, err := kube.GetNetwork(ctx, c.client, ref)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	invalid := kube.ParseNetwork(read.Object).Err
	if conditionIsCurrent(read.Object, invalid) {
		return nil
	}
	status := kube.NetworkStatusOf(read.Object).DeepCopy()
	meta.SetStatusCondition(&status.Conditions, readyCondition(read.GetGeneration(), invalid))
	if _, err := read.UpdateStatus(ctx, c.client, status); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write condition of %s: %w", ref, err)
	}
	return nil
}

// conditionIsCurrent reports whether the condition of a network has its validation error. A
// valid network needs a condition only if it had v1.ReasonNetworkInvalid before.
func conditionIsCurrent(obj client.Object, invalid error) bool {
	c := meta.FindStatusCondition(kube.NetworkStatusOf(obj).Conditions, v1.ConditionReady)
	if invalid == nil {
		return c == nil || c.Reason != v1.ReasonNetworkInvalid
	}
	return c != nil && c.Reason == v1.ReasonNetworkInvalid && c.Message == invalid.Error()
}

// readyCondition returns the condition of a network with that validation error, or of a valid
// one.
func readyCondition(generation int64, invalid error) metav1.Condition {
	c := metav1.Condition{
		Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonNetworkValid,
		Message: "the network is valid", ObservedGeneration: generation,
	}
	if invalid != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1.ReasonNetworkInvalid, invalid.Error()
	}
	return c
}
