// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package cluster

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// lookup returns a running Lookup.
func lookup(t *testing.T, env *apitest.Env) *Lookup {
	t.Helper()
	ctx, conn := logged(t), connect(t, env)
	l, err := NewLookup(ctx, conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	start(ctx, t, conn.Cache.Start)
	wait(t, "Pods to be cached", func(context.Context) error {
		if !l.Pods.Synced() {
			return errors.New("not synced")
		}
		return nil
	})
	return l
}

// newPod creates a Pod on the test's node.
func newPod(t *testing.T, env *apitest.Env, namespace, name string, annotations map[string]string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if err := env.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// A StatefulSet's new Pod has the old one's name: a stale cache must not be
// taken for it, in either direction.
func TestPodOfThatNameAndUID(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	l, ns := lookup(t, env), env.Namespace(t)
	for range 10 {
		pod := newPod(t, env, ns, "web-0", map[string]string{v1.InterfacesAnnotation: "[]"})
		got, err := l.Pod(t.Context(), ns, "web-0", string(pod.UID))
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

func TestPodThatIsNotThere(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	l, ns := lookup(t, env), env.Namespace(t)
	pod := newPod(t, env, ns, "a", nil)
	mirror := newPod(t, env, ns, "static", map[string]string{corev1.MirrorPodAnnotationKey: "hash"})
	cases := map[string]struct {
		reason, name, uid string
		want              error
	}{
		"ByName":     {reason: "an old runtime gives no UID", name: "a"},
		"ByUID":      {reason: "kubelet's UID", name: "a", uid: string(pod.UID)},
		"OtherUID":   {reason: "the Pod was replaced", name: "a", uid: "other", want: attach.ErrNotFound},
		"Missing":    {reason: "no such Pod", name: "b", uid: "x", want: attach.ErrNotFound},
		"Static":     {reason: "kubelet calls a static Pod by its manifest's hash", name: "static", uid: "hash"},
		"StaticLive": {reason: "the mirror Pod's own UID", name: "static", uid: string(mirror.UID)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := l.Pod(t.Context(), ns, tc.name, tc.uid)
			if !errors.Is(err, tc.want) {
				t.Fatalf("%s: got error %v, want %v", tc.reason, err, tc.want)
			}
			if err == nil && got.Name != tc.name {
				t.Errorf("%s: got Pod %s", tc.reason, got.Name)
			}
		})
	}
}

// A conflict is the network's, whose admin can end it, and the Pod's that met it.
func TestConflictIsAnEventOnNetworkAndPod(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	l, ns := lookup(t, env), env.Namespace(t)
	pod := newPod(t, env, ns, "a", nil)
	conflict := fmt.Errorf("%w: network ClusterNetwork/lan", attach.ErrConflict)
	lan := &network.Network{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: ns + "-lan"}, UID: "lan-uid"}
	own := &network.Network{Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: ns, Name: "own"}, UID: "own-uid"}
	l.ReportConflict(pod, lan, conflict)
	l.ReportConflict(nil, own, conflict)
	want := []string{"ClusterNetwork " + ns + "-lan AddressInUse", "Pod a AddressInUse", "TenantNetwork own AddressInUse"}
	wait(t, "the Events", func(ctx context.Context) error {
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

func TestRefusalIsOneEventPerReason(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	l, ns := lookup(t, env), env.Namespace(t)
	pod := newPod(t, env, ns, "a", nil)
	for range 5 {
		l.ReportFailure(pod, fmt.Errorf("claim: %w", claims.ErrExhausted))
	}
	l.ReportFailure(pod, errors.New("something else"))
	wait(t, "the Events", func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := env.Client.List(ctx, events, client.InNamespace(ns)); err != nil {
			return err
		}
		var got []string
		for _, e := range events.Items {
			if e.InvolvedObject.UID != pod.UID || e.Type != corev1.EventTypeWarning {
				t.Fatalf("Event %+v is not a warning about the Pod", e)
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
