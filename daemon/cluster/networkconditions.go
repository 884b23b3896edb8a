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

	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
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

// validityJitter spreads the nodes, so that one writes and the others find the
// condition written.
const validityJitter = 5 * time.Second

// Validity writes on networks what is wrong with them. The API server refuses
// most mistakes; this is for those that were stored before a rule was there.
type Validity struct {
	c     client.Client
	queue workqueue.TypedRateLimitingInterface[network.Ref]
}

// NewValidity returns a Validity that works with Run.
func NewValidity(c client.Client) *Validity {
	return &Validity{c: c, queue: newQueue[network.Ref]()}
}

// Look takes note of an object that was read, and what is wrong with it.
func (v *Validity) Look(obj client.Object, _ *network.Network, err error) {
	if kind, ok := objects.KindOf(obj); ok && !says(obj, err) {
		v.queue.AddAfter(objects.RefOf(kind, obj), rand.N(validityJitter))
	}
}

// Run works until ctx ends.
func (v *Validity) Run(ctx context.Context) error {
	work(ctx, v.queue, 1, v.sync)
	return nil
}

// sync brings the condition of one network up to its spec.
func (v *Validity) sync(ctx context.Context, ref network.Ref) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	obj, err := objects.New(ref.Kind)
	if err != nil {
		return err
	}
	if err := v.c.Get(ctx, objects.Key(ref), obj); err != nil {
		return client.IgnoreNotFound(err)
	}
	wrong := objects.ModelOf(obj).Err
	if says(obj, wrong) {
		return nil
	}
	meta.SetStatusCondition(&objects.StatusOf(obj).Conditions, condition(obj.GetGeneration(), wrong))
	if err := v.c.Status().Update(ctx, obj); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write condition of %s: %w", ref, err)
	}
	return nil
}

// says reports whether an object's condition tells what is wrong with it. One
// that is right and was never called wrong needs no word from here.
func says(obj client.Object, wrong error) bool {
	c := meta.FindStatusCondition(objects.StatusOf(obj).Conditions, ConditionReady)
	if wrong == nil {
		return c == nil || c.Reason != reasonInvalid
	}
	return c != nil && c.Reason == reasonInvalid && c.Message == wrong.Error()
}

// condition is what to say.
func condition(generation int64, wrong error) metav1.Condition {
	c := metav1.Condition{
		Type: ConditionReady, Status: metav1.ConditionTrue, Reason: reasonValid,
		Message: "the network's definition is valid", ObservedGeneration: generation,
	}
	if wrong != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonInvalid, wrong.Error()
	}
	return c
}
