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

// ErrActive is returned where the API server has workload controllers. They would run at the hub what
// is meant for clusters, and write the statuses that the hub writes.
var ErrActive = errors.New("this API server's Deployments get ReplicaSets of their own: a hub needs one " +
	"whose kube-controller-manager runs no workload controllers (--controllers, see docs/placement.md)")

const (
	// probeName is the name of the Deployment without replicas that workload controllers would observe.
	probeName = "patchbay-hub-probe"
	// probeDuration is how long they have for it.
	probeDuration = 10 * time.Second
	// probeRetry is the pause between attempts while the API server does not answer.
	probeRetry = 5 * time.Second
	// probeCleanup bounds the deletion of the probe when the hub is asked to end.
	probeCleanup = 10 * time.Second
	// preflightWait is how long a hub that has placed nothing yet waits for the result.
	preflightWait = 3 * time.Second
)

// preflight finds out whether the API server has workload controllers, and ends the manager if so.
type preflight struct {
	client   client.WithWatch
	duration time.Duration // of the probe
	passed   chan struct{}
}

func newPreflight(m manager.Manager, duration time.Duration) (*preflight, error) {
	c, err := client.NewWithWatch(m.GetConfig(), client.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(),
	})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &preflight{client: c, duration: duration, passed: make(chan struct{})}, nil
}

// Start probes until there is a result, and then waits for ctx to end. It returns ErrActive where
// the hub must not run.
func (p *preflight) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, probeRetry, true, func(ctx context.Context) (bool, error) {
		err := p.probe(ctx)
		if err == nil || errors.Is(err, ErrActive) {
			return true, err
		}
		log.FromContext(ctx).Info("Failed to probe for workload controllers; the hub retries", "cause", err.Error())
		return false, nil
	})
	if errors.Is(err, ErrActive) {
		return err
	}
	if ctx.Err() == nil {
		close(p.passed)
	}
	<-ctx.Done()
	return nil
}

// await waits for the probe to pass, at most for this long. A hub that takes over from another one
// does not wait: the other one has probed before.
func (p *preflight) await(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-p.passed:
	case <-timer.C:
	case <-ctx.Done():
		return fmt.Errorf("wait for the preflight probe: %w", ctx.Err())
	}
	return nil
}

// probe creates a Deployment, and returns ErrActive if a controller observes it.
func (p *preflight) probe(ctx context.Context) (err error) {
	probe := newProbe()
	if err := client.IgnoreNotFound(p.client.Delete(ctx, probe.DeepCopy())); err != nil { // of a hub that was killed
		return fmt.Errorf("delete the earlier probe: %w", err)
	}
	if err := p.client.Create(ctx, probe); err != nil {
		return fmt.Errorf("probe for workload controllers: %w", err)
	}
	defer func() { // also when the hub is asked to end
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanup)
		defer cancel()
		deleteErr := p.client.Delete(ctx, probe, client.Preconditions{UID: &probe.UID})
		if apierrors.IsConflict(deleteErr) {
			deleteErr = nil // it is another hub's by now
		}
		err = errors.Join(err, client.IgnoreNotFound(deleteErr))
	}()
	ctx, cancel := context.WithTimeout(ctx, p.duration)
	defer cancel()
	_, err = toolswatch.Until(ctx, probe.ResourceVersion, p.probeWatch(), func(e watch.Event) (bool, error) {
		d, ok := e.Object.(*appsv1.Deployment)
		return ok && e.Type == watch.Modified && d.Status.ObservedGeneration > 0, nil
	})
	switch {
	case err == nil:
		return ErrActive
	case ctx.Err() != nil && (wait.Interrupted(err) || errors.Is(err, toolswatch.ErrWatchClosed)): // no controller has observed it
		return nil
	}
	return fmt.Errorf("probe for workload controllers: %w", err)
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

// probeWatch watches the probe alone.
func (p *preflight) probeWatch() *cache.ListWatch {
	return &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return p.client.Watch(ctx, &appsv1.DeploymentList{}, &client.ListOptions{Raw: &o},
			client.InNamespace(v1alpha1.SystemNamespace), client.MatchingFields{"metadata.name": probeName})
	}}
}
