// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubetest"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// newClient returns a Client whose cache has the Pods.
func newClient(t *testing.T, env *apitest.Env) *Client {
	t.Helper()
	ctx, conn := kubetest.LogContext(t), kubetest.Connect(t, env)
	events, err := NewEventRecorder(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(ctx, conn, nil, events)
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Start(ctx, t, conn.Cache.Start)
	kubetest.Eventually(t, "Pods to be cached", func(context.Context) error {
		if !c.pods.Synced() {
			return errors.New("not synced")
		}
		return nil
	})
	return c
}

// newPod creates a Pod on the node kubetest.Node.
func newPod(t *testing.T, env *apitest.Env, namespace, name string, annotations map[string]string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: kubetest.Node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if err := env.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// A StatefulSet's new Pod has the name of the old one. A stale cached Pod must not stand for the
// new one, nor the new one for the old one.
func TestPodWithNameAndUID(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	c, ns := newClient(t, env), env.Namespace(t)
	for range 10 {
		pod := newPod(t, env, ns, "web-0", map[string]string{v1.InterfacesAnnotation: "[]"})
		got, err := c.Pod(t.Context(), ns, "web-0", string(pod.UID))
		if err != nil {
			t.Fatal(err)
		}
		if got.UID != pod.UID || got.Annotations[v1.InterfacesAnnotation] != "[]" || got.Labels["app"] != "web" {
			t.Errorf("got %+v, want the metadata of %s", got.ObjectMeta, pod.UID)
		}
		if err := env.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
}

// A Pod is found by its name and the UID that kubelet knows.
func TestPodByUID(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	c, ns := newClient(t, env), env.Namespace(t)
	pod := newPod(t, env, ns, "a", nil)
	mirror := newPod(t, env, ns, "static", map[string]string{corev1.MirrorPodAnnotationKey: "hash"})
	cases := map[string]struct {
		reason, name, uid string
		want              error
	}{
		"ByName":   {reason: "An old runtime passes no UID.", name: "a"},
		"ByUID":    {reason: "Kubelet passes the UID of an ordinary Pod.", name: "a", uid: string(pod.UID)},
		"OtherUID": {reason: "The Pod was replaced by another one of its name.", name: "a", uid: "other", want: attach.ErrNotFound},
		"Missing":  {reason: "The Pod does not exist.", name: "b", uid: "x", want: attach.ErrNotFound},
		"Static":   {reason: "Kubelet identifies a static Pod by the hash of its manifest.", name: "static", uid: "hash"},
		"Mirror":   {reason: "The mirror Pod in the API server has a UID of its own.", name: "static", uid: string(mirror.UID)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.Pod(t.Context(), ns, tc.name, tc.uid)
			if !errors.Is(err, tc.want) {
				t.Fatalf("%s: got error %v, want %v", tc.reason, err, tc.want)
			}
			if err == nil && got.Name != tc.name {
				t.Errorf("%s: got Pod %s", tc.reason, got.Name)
			}
		})
	}
}

// An address conflict is an Event on the network, for its admin, and on the Pod.
func TestConflictIsAnEventOnNetworkAndPod(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	c, ns := newClient(t, env), env.Namespace(t)
	pod := newPod(t, env, ns, "a", nil)
	conflict := fmt.Errorf("%w: network ClusterNetwork/lan", attach.ErrConflict)
	lan := &network.Network{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: ns + "-lan"}, UID: "lan-uid"}
	own := &network.Network{Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: ns, Name: "own"}, UID: "own-uid"}
	c.ReportConflict(pod, lan, conflict)
	c.ReportConflict(nil, own, conflict)
	want := []string{"ClusterNetwork " + ns + "-lan AddressInUse", "Pod a AddressInUse", "TenantNetwork own AddressInUse"}
	kubetest.Eventually(t, "the Events", func(ctx context.Context) error {
		var got []string
		for _, in := range []string{ns, metav1.NamespaceDefault} {
			events := &corev1.EventList{}
			if err := env.Client.List(ctx, events, client.InNamespace(in)); err != nil {
				return err
			}
			for _, e := range events.Items {
				if o := e.InvolvedObject; in == ns || o.Name == lan.Ref.Name {
					got = append(got, o.Kind+" "+o.Name+" "+e.Reason)
				}
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// A repeated failure increments the count of one Event.
func TestFailureIsOneEventPerReason(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	c, ns := newClient(t, env), env.Namespace(t)
	pod := newPod(t, env, ns, "a", nil)
	for range 5 {
		c.ReportFailure(pod, fmt.Errorf("claim: %w", allocator.ErrExhausted))
	}
	c.ReportFailure(pod, errors.New("something else"))
	kubetest.Eventually(t, "the Events", func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := env.Client.List(ctx, events, client.InNamespace(ns)); err != nil {
			return err
		}
		var got []string
		for _, e := range events.Items {
			if e.InvolvedObject.UID != pod.UID || e.Type != corev1.EventTypeWarning {
				t.Fatalf("Event %+v must be a Warning about the Pod", e)
			}
			got = append(got, fmt.Sprintf("%s x%d", e.Reason, e.Count))
		}
		all := strings.Join(got, " ")
		if len(got) != 2 || !strings.Contains(all, "AddressesExhausted x5") || !strings.Contains(all, "NetworkAttachmentFailed x1") {
			return errors.New(all)
		}
		return nil
	})
}

// A Pod with its spec is the one whose metadata was read, not a later one of its name.
func TestPodWithSpec(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	c, ns := newClient(t, env), env.Namespace(t)
	pod := newPod(t, env, ns, "a", nil)
	cases := map[string]struct {
		reason, name, uid string
		want              error
	}{
		"Same":    {reason: "The Pod is still there.", name: "a", uid: string(pod.UID)},
		"Other":   {reason: "The Pod was replaced by another one of its name.", name: "a", uid: "other", want: attach.ErrTryAgain},
		"Deleted": {reason: "The Pod is gone.", name: "b", uid: "x", want: attach.ErrTryAgain},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.PodWithSpec(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: tc.name, UID: types.UID(tc.uid)}})
			if !errors.Is(err, tc.want) {
				t.Fatalf("%s: got error %v, want %v", tc.reason, err, tc.want)
			}
			if err == nil && (len(got.Spec.Containers) != 1 || got.Spec.Containers[0].Name != "c") {
				t.Errorf("%s: got containers %+v", tc.reason, got.Spec.Containers)
			}
		})
	}
}
