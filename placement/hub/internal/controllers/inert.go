// SPDX-License-Identifier: Apache-2.0

package controllers

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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// ErrActive says that the API server runs workload controllers of its own: they would
// run at the hub what is meant for clusters, and write the statuses that we write.
var ErrActive = errors.New("this API server's Deployments get ReplicaSets of their own: a hub needs one " +
	"whose kube-controller-manager runs no workload controllers (--controllers, see docs/placement.md)")

// How the hub finds out: a Deployment without replicas is seen by its controller at
// once, if there is one. Only a hub that has placed nothing yet waits for that.
const (
	probeName  = "patchbay-hub-probe"
	probeLife  = 10 * time.Second
	probeRetry = 5 * time.Second
	// probeCleanup is how long the probe's removal may take when the hub is asked to end.
	probeCleanup = 10 * time.Second
	// freshWait is how long a hub that has placed nothing yet waits for the answer.
	freshWait = 3 * time.Second
)

// addRefusal makes a manager end where somebody else runs workloads.
func (h *hub) addRefusal(m manager.Manager) error {
	c, err := client.NewWithWatch(m.GetConfig(), client.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(),
	})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if err := refuse(ctx, c, h.probeLife); errors.Is(err, ErrActive) {
			return err
		}
		if ctx.Err() == nil {
			close(h.probed)
		}
		<-ctx.Done()
		return nil
	}))
}

// awaitProbe keeps a new hub from touching anything where it should not run. One that
// takes over from another hub goes on at once: it was found out before.
func (h *hub) awaitProbe(ctx context.Context) error {
	timer := time.NewTimer(h.freshWait)
	defer timer.Stop()
	select {
	case <-h.probed:
	case <-timer.C:
	case <-ctx.Done():
		return fmt.Errorf("wait for the probe: %w", ctx.Err())
	}
	return nil
}

// refuse finds out whether somebody else runs workloads here, however long the API server
// is away meanwhile.
func refuse(ctx context.Context, c client.WithWatch, life time.Duration) error {
	return wait.PollUntilContextCancel(ctx, probeRetry, true, func(ctx context.Context) (bool, error) {
		err := inert(ctx, c, life)
		if err == nil || errors.Is(err, ErrActive) {
			return true, err
		}
		log.FromContext(ctx).Info("Cannot tell yet whether this API server runs workloads; trying again", "cause", err.Error())
		return false, nil
	})
}

// inert makes sure that nobody else runs workloads here.
func inert(ctx context.Context, c client.WithWatch, life time.Duration) (err error) {
	probe := newProbe()
	if err := client.IgnoreNotFound(c.Delete(ctx, probe.DeepCopy())); err != nil { // of a hub that was killed
		return fmt.Errorf("clean up the probe: %w", err)
	}
	if err := c.Create(ctx, probe); err != nil {
		return fmt.Errorf("probe for workload controllers: %w", err)
	}
	defer func() { // also when the hub is asked to end
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanup)
		defer cancel()
		cleaned := c.Delete(ctx, probe, client.Preconditions{UID: &probe.UID})
		if apierrors.IsConflict(cleaned) {
			cleaned = nil // it is another hub's by now
		}
		err = errors.Join(err, client.IgnoreNotFound(cleaned))
	}()
	ctx, cancel := context.WithTimeout(ctx, life)
	defer cancel()
	_, err = toolswatch.Until(ctx, probe.ResourceVersion, probes(c), func(e watch.Event) (bool, error) {
		d, ok := e.Object.(*appsv1.Deployment)
		return ok && e.Type == watch.Modified && d.Status.ObservedGeneration > 0, nil
	})
	switch {
	case err == nil:
		return ErrActive
	case ctx.Err() != nil && (wait.Interrupted(err) || errors.Is(err, toolswatch.ErrWatchClosed)): // nobody has seen it
		return nil
	}
	return fmt.Errorf("probe for workload controllers: %w", err)
}

// probes watches the probe alone.
func probes(c client.WithWatch) *cache.ListWatch {
	return &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return c.Watch(ctx, &appsv1.DeploymentList{}, &client.ListOptions{Raw: &o},
			client.InNamespace(v1alpha1.SystemNamespace), client.MatchingFields{"metadata.name": probeName})
	}}
}

func newProbe() *appsv1.Deployment {
	labels := map[string]string{"app.kubernetes.io/name": probeName}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: probeName},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "none", Image: "none"}}},
			},
		},
	}
}
