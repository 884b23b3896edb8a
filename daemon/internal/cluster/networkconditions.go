// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// ConditionReady is the condition of a network that says whether Pods can use it.
const ConditionReady = "Ready"

// Reasons of ConditionReady that the daemon writes.
const (
	// reasonInvalid: the message names the field that is wrong.
	reasonInvalid = "Invalid"
	// reasonValid follows reasonInvalid once the network was corrected.
	reasonValid = "Valid"
)

// conditionJitter spreads the nodes, so that one writes and the others find the
// condition written.
const conditionJitter = 5 * time.Second

// NetworkConditions writes on networks what is wrong with them. The API server refuses
// most mistakes; this is for those that were stored before a rule was there.
type NetworkConditions struct {
	c     client.Client
	queue workqueue.TypedRateLimitingInterface[network.Ref]
}

// NewNetworkConditions returns a Validity that works with Run.
func NewNetworkConditions(c client.Client) *NetworkConditions {
	return &NetworkConditions{c: c, queue: newQueue[network.Ref]()}
}

// Observe takes note of an object that was read, and what is wrong with it.
func (v *NetworkConditions) Observe(obj client.Object, _ *network.Network, err error) {
	if kind, ok := kube.NetworkKindOf(obj); ok && !conditionIsCurrent(obj, err) {
		v.queue.AddAfter(kube.NetworkRefOf(kind, obj), rand.N(conditionJitter))
	}
}

// Run works until ctx ends.
func (v *NetworkConditions) Run(ctx context.Context) error {
	runWorkers(ctx, v.queue, 1, v.sync)
	return nil
}

// sync brings the condition of one network up to its spec.
func (v *NetworkConditions) sync(ctx context.Context, ref network.Ref) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	obj, err := kube.NewNetwork(ref.Kind)
	if err != nil {
		return err
	}
	if err := v.c.Get(ctx, kube.ObjectKey(ref), obj); err != nil {
		return client.IgnoreNotFound(err)
	}
	wrong := kube.ParseNetwork(obj).Err
	if conditionIsCurrent(obj, wrong) {
		return nil
	}
	meta.SetStatusCondition(&kube.NetworkStatusOf(obj).Conditions, readyCondition(obj.GetGeneration(), wrong))
	if err := v.c.Status().Update(ctx, obj); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write condition of %s: %w", ref, err)
	}
	return nil
}

// conditionIsCurrent reports whether an object's condition tells what is wrong with it. One
// that is right and was never called wrong needs no word from here.
func conditionIsCurrent(obj client.Object, wrong error) bool {
	c := meta.FindStatusCondition(kube.NetworkStatusOf(obj).Conditions, ConditionReady)
	if wrong == nil {
		return c == nil || c.Reason != reasonInvalid
	}
	return c != nil && c.Reason == reasonInvalid && c.Message == wrong.Error()
}

// readyCondition is what to say.
func readyCondition(generation int64, wrong error) metav1.Condition {
	c := metav1.Condition{
		Type: ConditionReady, Status: metav1.ConditionTrue, Reason: reasonValid,
		Message: "the network's definition is valid", ObservedGeneration: generation,
	}
	if wrong != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonInvalid, wrong.Error()
	}
	return c
}
