// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/allocations"
	"github.com/patchbay-cni/patchbay/test/lab/image"
)

// errDuplicate means that two Pods have had an address at the same time.
var errDuplicate = errors.New("duplicate address")

// churn creates and deletes Pods on networks all the time, several on each node. It ends with the first Pod that does
// not become ready, or that gets an address of another one.
type churn struct {
	client  client.Client
	workers *errgroup.Group
	// failed is done when a worker has failed.
	failed context.Context
	stop   context.CancelFunc

	mu sync.Mutex
	// owners are the Pods that have an address of a network.
	owners map[string]string
	// rounds is how many Pods each worker has started and ended.
	rounds  map[string]int
	slowest time.Duration
}

// worker replaces a Pod by the next one all the time.
type worker struct {
	name, node string
	// interfaces of each Pod.
	interfaces func(round int) string
	// addresses is how many each Pod has.
	addresses int
}

// workers returns those of all nodes: Pods with dynamic addresses of two networks, and Pods with a static one.
func (b *bed) workers() []worker {
	var all []worker
	for i, node := range b.nodes {
		all = append(all, worker{"dynamic-" + node, node, func(int) string {
			return `[{"clusterNetwork":"storage","ip":"dynamic"},{"clusterNetwork":"overlay","ip":"dynamic"}]`
		}, 2}, worker{"static-" + node, node, func(round int) string {
			const each = 10
			return fmt.Sprintf(`[{"clusterNetwork":"pods"},{"clusterNetwork":"storage","ip":"10.50.0.%d/24"}]`, 20+each*i+round%each)
		}, 2})
	}
	return all
}

// startChurn starts the churn. The addresses of the Pods that run are theirs.
func (b *bed) startChurn() *churn {
	b.Helper()
	failing, stop := context.WithCancel(b.Context())
	group, failed := errgroup.WithContext(b.Context())
	c := &churn{client: b.client, workers: group, failed: failed, stop: stop, owners: map[string]string{}, rounds: map[string]int{}}
	b.Cleanup(stop)
	var pods corev1.PodList
	if err := c.client.List(b.Context(), &pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		b.Fatal(err)
	}
	for _, p := range pods.Items {
		eps, err := c.endpoints(b.Context(), &p)
		if err == nil {
			err = c.take(eps)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for _, w := range b.workers() {
		group.Go(func() error {
			for round := 0; failing.Err() == nil && failed.Err() == nil; round++ {
				if err := c.replace(failed, w, round); err != nil {
					return fmt.Errorf("Pod %d of %s: %w", round, w.name, err)
				}
			}
			return nil
		})
	}
	return c
}

// replace starts a Pod, waits until it is ready, and deletes it.
func (c *churn) replace(ctx context.Context, w worker, round int) error {
	grace := int64(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s-%d", w.name, round),
			Annotations: map[string]string{v1.InterfacesAnnotation: w.interfaces(round)},
		},
		Spec: corev1.PodSpec{
			NodeName: w.node, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{
				Name: "main", Image: image.Busybox, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "infinity"},
			}},
		},
	}
	began := time.Now()
	if err := c.client.Create(ctx, p); err != nil {
		return err
	}
	var eps []v1.DanmEp
	err := poll(ctx, "become ready", func() (state string, done bool, err error) {
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil || !isReady(p) {
			return string(p.Status.Phase), false, err
		}
		eps, err = c.endpoints(ctx, p)
		return fmt.Sprintf("%d of %d DanmEps", len(eps), w.addresses), len(eps) == w.addresses, err
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.slowest = max(c.slowest, time.Since(began))
	c.mu.Unlock()
	if err := c.take(eps); err != nil {
		return err
	}
	c.giveBack(eps)
	if err := c.client.Delete(ctx, p); err != nil {
		return err
	}
	err = poll(ctx, "be gone", func() (state string, done bool, err error) {
		err = c.client.Get(ctx, client.ObjectKeyFromObject(p), p)
		return string(p.Status.Phase), apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rounds[w.name]++
	return err
}

// poll is bed.await for a worker.
func poll(ctx context.Context, what string, look func() (state string, done bool, err error)) error {
	const pause = 300 * time.Millisecond
	last, changed := "", time.Now()
	for {
		state, done, err := look()
		if done || err != nil {
			return err
		}
		if state != last {
			last, changed = state, time.Now()
		}
		if time.Since(changed) > stallTimeout {
			return fmt.Errorf("must %s: %q since %v", what, last, stallTimeout)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// endpoints returns the DanmEps of a Pod that have an address.
func (c *churn) endpoints(ctx context.Context, p *corev1.Pod) ([]v1.DanmEp, error) {
	var list v1.DanmEpList
	if err := c.client.List(ctx, &list, client.InNamespace(p.Namespace)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(ep v1.DanmEp) bool {
		return ep.Spec.PodUID != string(p.UID) || ep.Spec.Interface.Address == ""
	}), nil
}

// take records that a Pod has its addresses. An address that another one has is an error.
func (c *churn) take(eps []v1.DanmEp) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ep := range eps {
		key := ep.Spec.NetworkName + " " + ep.Spec.Interface.Address
		if other, taken := c.owners[key]; taken {
			return fmt.Errorf("%w: %s of %s and %s", errDuplicate, key, other, ep.Spec.Pod)
		}
		c.owners[key] = ep.Spec.Pod
	}
	return nil
}

// giveBack records that a Pod is about to lose its addresses.
func (c *churn) giveBack(eps []v1.DanmEp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ep := range eps {
		delete(c.owners, ep.Spec.NetworkName+" "+ep.Spec.Interface.Address)
	}
}

// awaitRounds waits until each worker has started and ended a Pod that it created after the call.
func (b *bed) awaitRounds(c *churn) {
	b.Helper()
	const more = 2 // the first of them may have started before
	c.mu.Lock()
	want := map[string]int{}
	for _, w := range b.workers() {
		want[w.name] = c.rounds[w.name] + more
	}
	c.mu.Unlock()
	b.await("Pods to start and end on all nodes", func(context.Context) (string, bool) {
		if c.failed.Err() != nil {
			b.Fatal(c.workers.Wait())
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for name, rounds := range want {
			if c.rounds[name] < rounds {
				return fmt.Sprint(c.rounds), false
			}
		}
		return "", true
	})
}

// endChurn ends the churn, reports how often kubelet has tried again, and checks that exactly the addresses of the Pods
// that run are taken.
func (b *bed) endChurn(c *churn) {
	b.Helper()
	c.stop()
	if err := c.workers.Wait(); err != nil {
		b.Fatal(err)
	}
	total := 0
	for _, rounds := range c.rounds {
		total += rounds
	}
	b.Logf("%d Pods have started and ended, the slowest start took %v", total, c.slowest.Round(time.Second))
	b.reportRetries(c)
	for _, network := range []string{"storage", "overlay"} {
		b.await("the addresses of "+network+" to be those of Pods", func(ctx context.Context) (string, bool) {
			a, err := allocations.Read(ctx, c.client, network)
			if err != nil {
				return err.Error(), false
			}
			running := 0
			for key := range c.owners {
				if strings.HasPrefix(key, network+" ") {
					running++
				}
			}
			wrong := a.Inconsistency()
			if len(a.Endpoints) != running {
				wrong = cmp.Or(wrong, fmt.Sprintf("the DanmEps have %v, want %d addresses", allocations.Sorted(a.Endpoints), running))
			}
			if both := a.PublishedAndHeld(); len(both) > 0 {
				wrong = cmp.Or(wrong, fmt.Sprintf("%v are in DanmEps and in the nodes' entries", both))
			}
			return wrong, wrong == ""
		})
	}
}

// reportRetries logs why kubelet had to try again to attach a Pod.
func (b *bed) reportRetries(c *churn) {
	b.Helper()
	var events corev1.EventList
	if err := c.client.List(b.Context(), &events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		b.Fatal(err)
	}
	tries, pods := 0, map[string]bool{}
	for _, e := range events.Items {
		if e.Reason != "FailedCreatePodSandBox" || e.LastTimestamp.Time.Before(b.began) {
			continue
		}
		tries += int(max(1, e.Count))
		pods[e.InvolvedObject.Name] = true
		b.Logf("Pod %s, %d times: %s", e.InvolvedObject.Name, e.Count, e.Message)
	}
	b.Logf("kubelet has tried again %d times, for %d Pods", tries, len(pods))
}
