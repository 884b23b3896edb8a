// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// pod returns a sleeping Pod that asks for interfaces, on a node or, with an
// empty node, anywhere.
func pod(namespace, name, node, interfaces string) *corev1.Pod {
	grace := int64(0)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			TerminationGracePeriodSeconds: &grace,
			AutomountServiceAccountToken:  new(bool),
			Containers: []corev1.Container{{
				Name: "main", Image: busybox, ImagePullPolicy: corev1.PullNever,
				Command: []string{"sleep", "infinity"},
			}},
		},
	}
	if interfaces != "" {
		p.Annotations = map[string]string{v1.InterfacesAnnotation: interfaces}
	}
	return p
}

// interfaceAnnotation is the annotation for one interface with an address of the network, "dynamic" or
// a static one. Without the network of other Pods' eth0 no other plugin is executed,
// which takes a node of the lab longer than all the rest.
func interfaceAnnotation(network, address string) string {
	return fmt.Sprintf(`[{"clusterNetwork":%q,"ip":%q}]`, network, address)
}

// restartAlways makes a Pod whose container comes back after whatever ended it.
func restartAlways(p *corev1.Pod) *corev1.Pod {
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	return p
}

// namespace makes a namespace for one test and takes it away at its end.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	name := "t-" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	if len(name) > 50 {
		name = strings.TrimRight(name[:50], "-")
	}
	c.createNamespace(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return name
}

// createNamespace makes a namespace and waits for the service account that Pods need there:
// for a Pod that comes earlier the API server waits a second, which may be too short.
func (c *cluster) createNamespace(t *testing.T, ns *corev1.Namespace) {
	t.Helper()
	c.create(t, ns)
	c.await(t.Context(), t, "Pods can be created in "+ns.Name, func(ctx context.Context) string {
		if err := c.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: "default"}, &corev1.ServiceAccount{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// create makes an object that is deleted when the test ends.
func (c *cluster) create(t *testing.T, obj client.Object) {
	t.Helper()
	c.retryAdmission(t.Context(), t, "create", obj, c.createIdempotently(obj))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		c.retryAdmission(ctx, t, "delete", obj, func(ctx context.Context) error { return client.IgnoreNotFound(c.Delete(ctx, obj)) })
		c.await(ctx, t, fmt.Sprintf("%T %s is gone", obj, obj.GetName()), func(ctx context.Context) string {
			err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
			if client.IgnoreNotFound(err) == nil && err != nil {
				return ""
			}
			return fmt.Sprintf("it has the finalizers %v (error: %v)", obj.GetFinalizers(), err)
		})
	})
}

// createIdempotently creates an object; one whose creation got no answer may be there already.
func (c *cluster) createIdempotently(obj client.Object) func(context.Context) error {
	tried := false
	return func(ctx context.Context) error {
		err := c.Create(ctx, obj)
		if tried && apierrors.IsAlreadyExists(err) {
			return c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		}
		tried = true
		return err
	}
}

// retryAdmission repeats a request while admission is away, as a node that it runs on may be,
// while the API server is too busy for an answer, and while the last DanmEps of Pods
// that are gone keep their network.
func (c *cluster) retryAdmission(ctx context.Context, t *testing.T, verb string, obj client.Object, do func(context.Context) error) {
	t.Helper()
	what := fmt.Sprintf("%s %T %s", verb, obj, obj.GetName())
	c.await(ctx, t, what, func(ctx context.Context) string {
		err := do(ctx)
		switch {
		case err == nil:
			return ""
		case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "webhook"), isRetriable(err):
		case verb == "delete" && apierrors.IsInvalid(err):
		default:
			t.Fatalf("%s: %v", what, err)
		}
		return err.Error()
	})
}

// isRetriable tells that a request may succeed when it is sent again, or has.
func isRetriable(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) || errors.As(err, new(net.Error))
}

// delete asks for the end of an object that is there.
func (c *cluster) delete(t *testing.T, obj client.Object) {
	t.Helper()
	tried := false
	c.retryAdmission(t.Context(), t, "delete", obj, func(ctx context.Context) error {
		err := c.Delete(ctx, obj)
		if tried {
			err = client.IgnoreNotFound(err)
		}
		tried = true
		return err
	})
}

// deleteAll asks for the end of all Pods of a namespace.
func (c *cluster) deleteAll(t *testing.T, ns string) {
	t.Helper()
	c.retryAdmission(t.Context(), t, "delete", &corev1.Pod{}, func(ctx context.Context) error {
		return c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(ns))
	})
}

// startPods creates Pods and waits until all of them run.
func (c *cluster) startPods(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		c.create(t, p)
	}
	for _, p := range pods {
		c.awaitRunning(t.Context(), t, p)
	}
}

// awaitRunning waits until a Pod runs.
func (c *cluster) awaitRunning(ctx context.Context, t *testing.T, p *corev1.Pod) {
	t.Helper()
	c.await(ctx, t, "Pod "+p.Name+" runs", func(ctx context.Context) string {
		if err := c.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err.Error()
		}
		if p.Status.Phase == corev1.PodRunning {
			return ""
		}
		return fmt.Sprintf("it is %s; its Events:\n%s", p.Status.Phase, strings.Join(c.warningEvents(ctx, p), "\n"))
	})
}

// createPods creates n Pods on a node in one go.
func (c *cluster) createPods(t *testing.T, n int, ns, prefix, node, interfaces string) []*corev1.Pod {
	t.Helper()
	var pods []*corev1.Pod
	for i := range n {
		p := pod(ns, fmt.Sprintf("%s-%d", prefix, i), node, interfaces)
		c.create(t, p) // its end comes before that of its network
		pods = append(pods, p)
	}
	return pods
}

// runningPods counts the Pods of a namespace that run.
func (c *cluster) runningPods(ctx context.Context, ns string) (int, error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(ns)); err != nil {
		return 0, err
	}
	n := 0
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n, nil
}

// deletePods deletes all Pods of a namespace and waits until the network's books have
// no Pod any more.
func (c *cluster) deletePods(t *testing.T, ns, network string, cidr netip.Prefix) {
	t.Helper()
	c.deleteAll(t, ns)
	c.awaitNothingLeft(t, ns, network, cidr)
}

// awaitNothingLeft waits until nothing is left of a namespace's Pods, anywhere.
func (c *cluster) awaitNothingLeft(t *testing.T, ns, network string, cidr netip.Prefix) {
	t.Helper()
	c.await(t.Context(), t, "nothing is left of the Pods", func(ctx context.Context) string {
		var list corev1.PodList
		if err := c.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err.Error()
		}
		if n := len(list.Items); n > 0 {
			return fmt.Sprintf("%d Pods are there", n)
		}
		return c.checkAllocations(ctx, network, cidr, 0)
	})
}

// warningEvents are the messages that `kubectl describe` shows of a Pod, warnings only.
func (c *cluster) warningEvents(ctx context.Context, p *corev1.Pod) []string {
	var list corev1.EventList
	if err := c.List(ctx, &list, client.InNamespace(p.Namespace)); err != nil {
		return []string{err.Error()}
	}
	var messages []string
	for _, e := range list.Items {
		if e.InvolvedObject.Name == p.Name && e.Type == corev1.EventTypeWarning {
			messages = append(messages, e.Reason+": "+e.Message)
		}
	}
	return messages
}

// endpoints are the DanmEps of a Pod, by interface name.
func (c *cluster) endpoints(ctx context.Context, p *corev1.Pod) (map[string]v1.DanmEp, error) {
	var list v1.DanmEpList
	if err := c.List(ctx, &list, client.InNamespace(p.Namespace)); err != nil {
		return nil, err
	}
	byName := map[string]v1.DanmEp{}
	for _, ep := range list.Items {
		// A Pod of the same name that was here before may still have its own.
		if ep.Spec.PodUID == string(p.UID) {
			byName[ep.Spec.Interface.Name] = ep
		}
	}
	return byName, nil
}

// addresses are a Pod's on an interface, as its DanmEp says once there is one.
func (c *cluster) addresses(t *testing.T, p *corev1.Pod, ifc string) []netip.Addr {
	t.Helper()
	var ep v1.DanmEp
	c.await(t.Context(), t, "DanmEp of "+p.Name+"'s "+ifc+" exists", func(ctx context.Context) string {
		eps, err := c.endpoints(ctx, p)
		if err != nil {
			return err.Error()
		}
		var ok bool
		if ep, ok = eps[ifc]; !ok {
			return "there is none"
		}
		return ""
	})
	var found []netip.Addr
	for _, text := range []string{ep.Spec.Interface.Address, ep.Spec.Interface.AddressIPv6} {
		if a, err := netip.ParsePrefix(text); err == nil {
			found = append(found, a.Addr())
		}
	}
	if len(found) == 0 {
		t.Fatalf("DanmEp %s has no address: %+v", ep.Name, ep.Spec)
	}
	return found
}

// ping sends from one Pod to the other's addresses on an interface, from its own.
func (c *cluster) ping(t *testing.T, from, to *corev1.Pod, ifc string) {
	t.Helper()
	for _, target := range c.addresses(t, to, ifc) {
		args := []string{"exec", "-n", from.Namespace, from.Name, "--", "ping", "-c", "1", "-W", "2", "-I", ifc, target.String()}
		c.await(t.Context(), t, from.Name+" reaches "+target.String()+" on "+ifc, func(ctx context.Context) string {
			if out, err := c.lab.Kubectl(ctx, args...); err != nil {
				return err.Error() + "\n" + out
			}
			return ""
		})
	}
}

// runInPod runs a script in a Pod and returns what it prints. It runs it again until
// that has the script's last words: under load an exec may come back without them.
func (c *cluster) runInPod(t *testing.T, p *corev1.Pod, script, last string) (out string) {
	t.Helper()
	c.await(t.Context(), t, "a script ran in Pod "+p.Name, func(ctx context.Context) string {
		var err error
		out, err = c.lab.Kubectl(ctx, "exec", "-n", p.Namespace, p.Name, "--", "sh", "-c", script)
		if err != nil || !strings.HasSuffix(strings.TrimSpace(out), last) {
			return fmt.Sprintf("%s: %v\n%s", script, err, out)
		}
		return ""
	})
	return out
}
