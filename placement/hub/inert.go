// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// ErrActive says that the API server runs workload controllers of its own: they would
// run at the hub what is meant for clusters, and write the statuses that we write.
var ErrActive = errors.New("this API server's Deployments get ReplicaSets of their own: a hub needs one " +
	"whose kube-controller-manager runs no workload controllers (--controllers, see docs/placement.md)")

// How the hub finds out: a Deployment without replicas is seen by its controller at
// once, if there is one.
const (
	probeName = "patchbay-hub-probe"
	probeWait = 2 * time.Second
	probePoll = 100 * time.Millisecond
)

// inert makes sure that nobody else runs workloads here.
func inert(ctx context.Context, c client.Client) error {
	labels := map[string]string{"app.kubernetes.io/name": probeName}
	probe := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: probeName},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "none", Image: "none"}}},
			},
		},
	}
	if err := client.IgnoreNotFound(c.Delete(ctx, probe.DeepCopy())); err != nil { // of a hub that was killed
		return fmt.Errorf("clean up the probe: %w", err)
	}
	if err := c.Create(ctx, probe); err != nil {
		return fmt.Errorf("probe for workload controllers: %w", err)
	}
	seen := false
	err := wait.PollUntilContextTimeout(ctx, probePoll, probeWait, false, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(probe), probe)
		seen = err == nil && probe.Status.ObservedGeneration > 0
		return seen, client.IgnoreNotFound(err)
	})
	if err != nil && !wait.Interrupted(err) {
		return fmt.Errorf("probe for workload controllers: %w", err)
	}
	if err := c.Delete(ctx, probe); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("clean up the probe: %w", err)
	}
	if seen {
		return ErrActive
	}
	return ctx.Err()
}

// addRefusal makes a manager end where there are workload controllers.
func (h *hub) addRefusal(m manager.Manager) error {
	return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if err := h.load(ctx); errors.Is(err, ErrActive) {
			return err
		}
		<-ctx.Done()
		return nil
	}))
}
