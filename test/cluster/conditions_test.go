// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// A pool that fills up is seen with kubectl before and when it is full, and when it
// has addresses again: in the columns, in a condition and in Events.
func TestPoolConditions(t *testing.T) {
	const pool = 10
	c, ns := shared, shared.namespace(t)
	n := vxlan("pool", "pool", 8300, "10.83.0.0/24")
	n.Spec.Options.Pool = &v1.IPPool{Start: "10.83.0.10", End: fmt.Sprintf("10.83.0.%d", 10+pool-1)}
	c.create(t, n)
	// Nine interfaces of one Pod fill a pool as those of nine Pods do.
	many := pod(ns, "many", c.nodes[0], "["+strings.Repeat(`{"clusterNetwork":"pool","ip":"dynamic"},`, pool-1)+`{"clusterNetwork":"default"}]`)
	one := pod(ns, "one", c.nodes[1], interfaceAnnotation("pool", "dynamic"))
	steps := []struct {
		reason string
		do     func()
		status metav1.ConditionStatus
		word   string
		used   int
	}{
		{"at 90 % there is time to act", func() { c.create(t, many) }, metav1.ConditionTrue, v1.ReasonAddressesNearlyExhausted, pool - 1},
		{"at 100 % new Pods wait", func() { c.create(t, one) }, metav1.ConditionFalse, v1.ReasonAddressesExhausted, pool},
		{"the alarm ends", func() { c.delete(t, many) }, metav1.ConditionTrue, v1.ReasonAddressesSufficient, 1},
	}
	for _, step := range steps {
		step.do()
		c.await(t.Context(), t, step.reason, func(ctx context.Context) string {
			return c.poolMismatch(ctx, n, step.status, step.word, step.used, pool)
		})
	}
}

// poolMismatch says what of a pool's state cannot be seen as it should be.
func (c *cluster) poolMismatch(
	ctx context.Context, n *v1.ClusterNetwork, status metav1.ConditionStatus, reason string, used, capacity int,
) string {
	if err := c.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
		return err.Error()
	}
	now := meta.FindStatusCondition(n.Status.Conditions, v1.ConditionAddressesAvailable)
	if now == nil || now.Status != status || now.Reason != reason {
		return fmt.Sprintf("the condition is %+v, want %s because %s", now, status, reason)
	}
	out, err := c.lab.Kubectl(ctx, "get", "clusternetwork", n.Name)
	if err != nil {
		return err.Error()
	}
	if got := columns(out, "FREE", "CAPACITY"); !slices.Equal(got, []string{fmt.Sprint(capacity - used), fmt.Sprint(capacity)}) {
		return fmt.Sprintf("kubectl shows %v, want %d and %d:\n%s", got, capacity-used, capacity, out)
	}
	var events corev1.EventList
	if err := c.List(ctx, &events); err != nil {
		return err.Error()
	}
	for _, e := range events.Items {
		if e.InvolvedObject.Name == n.Name && e.InvolvedObject.UID == n.UID && e.Reason == reason && e.Message == now.Message {
			return ""
		}
	}
	return "no Event on the network says " + reason
}

// columns are the cells of kubectl's first row below some headings. Cells may be
// empty, but all begin where their heading does.
func columns(table string, headings ...string) []string {
	head, rest, _ := strings.Cut(table, "\n")
	row, _, _ := strings.Cut(rest, "\n")
	var cells []string
	for _, h := range headings {
		at := strings.Index(head, h)
		if at < 0 || at >= len(row) {
			return nil
		}
		cells = append(cells, strings.Fields(row[at:])[0])
	}
	return cells
}
