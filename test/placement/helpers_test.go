// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// waitTimeout is how long something may take on a busy machine; no test measures time.
const waitTimeout = 8 * time.Minute

const pollInterval = 100 * time.Millisecond

// eventually polls until try succeeds.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	for end := time.Now().Add(waitTimeout); ; <-time.After(pollInterval) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s: %v", waitTimeout, what, err)
		}
	}
}

// apply creates objects in a namespace at the hub.
func (w *world) apply(t *testing.T, c client.Client, ns, text string) {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), len(text))
	for {
		o := &unstructured.Unstructured{}
		if decoder.Decode(&o.Object) != nil {
			return
		}
		if o.Object == nil {
			continue
		}
		if o.GetNamespace() == "" && !strings.HasPrefix(o.GetKind(), "Cluster") && o.GetKind() != "CustomResourceDefinition" {
			o.SetNamespace(ns)
		}
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// annotate sets where an object goes; nil takes the annotation off.
func (w *world) annotate(t *testing.T, o client.Object, clusters string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.ClustersAnnotation, clusters)
	if err := w.Hub.Client.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch)), client.FieldOwner("user")); err != nil {
		t.Fatal(err)
	}
}

// scale sets the replicas of the Deployment web at the hub.
func (w *world) scale(t *testing.T, ns string, n int) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
	if err := w.Hub.Client.Patch(t.Context(), object("apps/v1", "Deployment", ns, "web"), patch); err != nil {
		t.Fatal(err)
	}
}

// deleteAtEnd deletes an object at the hub, at the end of a test.
func (w *world) deleteAtEnd(t *testing.T, o client.Object) {
	t.Helper()
	if err := w.Hub.Client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
}

// clustersWith lists the clusters that have the object.
func (w *world) clustersWith(t *testing.T, o client.Object) string {
	t.Helper()
	var found []string
	for name, c := range w.Clusters {
		err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		if err == nil {
			found = append(found, name)
		} else if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	slices.Sort(found)
	return strings.Join(found, ",")
}

func (w *world) awaitClustersWith(t *testing.T, o client.Object, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is in %q", o.GetName(), want), func() error {
		if got := w.clustersWith(t, o); got != want {
			return fmt.Errorf("is in %q", got)
		}
		return nil
	})
}

// replicas are the Deployment's spec.replicas by cluster, where it is.
func (w *world) replicas(ctx context.Context, ns, name string) (map[string]int32, error) {
	found := map[string]int32{}
	for cluster, c := range w.Clusters {
		d := &appsv1.Deployment{}
		err := c.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, d)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found[cluster] = *d.Spec.Replicas
	}
	return found, nil
}

// awaitReplicas waits until the Deployment web is in these clusters, and only there.
func (w *world) awaitReplicas(t *testing.T, ns string, want map[string]int32) {
	t.Helper()
	eventually(t, fmt.Sprintf("web is in %v", want), func() error {
		got, err := w.replicas(t.Context(), ns, "web")
		if err != nil {
			return err
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("is in %v", got)
		}
		return nil
	})
}

// awaitHubAvailable waits until the hub's Deployment has that many available replicas.
func (w *world) awaitHubAvailable(t *testing.T, ns, name string, n int32) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s has %d available at the hub", name, n), func() error {
		d := &appsv1.Deployment{}
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, d); err != nil {
			return err
		}
		if d.Status.AvailableReplicas != n || d.Status.ObservedGeneration != d.Generation {
			return fmt.Errorf("status %+v", d.Status)
		}
		return nil
	})
}

// awaitExact waits until the hub has east's status, deep-equal but for the generation.
func (w *world) awaitExact(t *testing.T, ns, name string) {
	t.Helper()
	key := client.ObjectKey{Namespace: ns, Name: name}
	eventually(t, "the hub has east's status, deep-equal but for the generation", func() error {
		there, here := &appsv1.Deployment{}, &appsv1.Deployment{}
		if err := errors.Join(w.Clusters["east"].Client.Get(t.Context(), key, there), w.Hub.Client.Get(t.Context(), key, here)); err != nil {
			return err
		}
		there.Status.ObservedGeneration = here.Generation
		if diff := cmp.Diff(there.Status, here.Status); diff != "" {
			return fmt.Errorf("-east +hub\n%s", diff)
		}
		return nil
	})
}

// awaitState waits until each object in east has a state, and returns their UIDs. It reads one
// object after the other: who lists all, again and again, slows down what it waits for.
func (w *world) awaitState(t *testing.T, all []client.Object, want string) map[string]types.UID {
	t.Helper()
	uids := map[string]types.UID{}
	for _, o := range all {
		name := printedName(o)
		eventually(t, name+" in east is "+want, func() error {
			found := &unstructured.Unstructured{}
			found.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
			if err := w.Clusters["east"].Client.Get(t.Context(), client.ObjectKeyFromObject(o), found); err != nil {
				return err
			}
			uids[name] = found.GetUID()
			got, _, err := unstructured.NestedString(found.Object, stateField(o)...)
			return errorUnless(err == nil && got == want, "it is %q (%v)", got, err)
		})
	}
	return uids
}

// awaitWorks waits until the status of each object's Work is as wanted, one after the other.
func (w *world) awaitWorks(t *testing.T, all []client.Object, what string, wanted func(*v1alpha1.WorkStatus) bool) {
	t.Helper()
	for _, o := range all {
		gvk := o.GetObjectKind().GroupVersionKind()
		key := client.ObjectKey{Namespace: v1alpha1.ClusterNamespacePrefix + "east", Name: v1alpha1.WorkName(gvk.Group, gvk.Kind, o.GetNamespace(), o.GetName())}
		eventually(t, "the Work of "+printedName(o)+" is "+what, func() error {
			work := &v1alpha1.Work{}
			if err := w.Hub.Client.Get(t.Context(), key, work); err != nil {
				return err
			}
			return errorUnless(wanted(&work.Status), "status %+v", work.Status)
		})
	}
}

// assignment finds the Assignment of an object.
func (w *world) assignment(ctx context.Context, ns, kind, name string) (*v1alpha1.Assignment, error) {
	var list v1alpha1.AssignmentList
	if err := w.Hub.Client.List(ctx, &list, client.InNamespace(ns)); err != nil {
		return nil, err
	}
	for i, a := range list.Items {
		if a.Spec.Object.Kind == kind && a.Spec.Object.Name == name {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("no Assignment of %s %s", kind, name)
}

// awaitPlacedReason waits until the condition Placed of an object's Assignment has a reason.
func (w *world) awaitPlacedReason(t *testing.T, o client.Object, reason string) {
	t.Helper()
	gvk := o.GetObjectKind().GroupVersionKind()
	key := client.ObjectKey{Namespace: o.GetNamespace(), Name: v1alpha1.WorkName(gvk.Group, gvk.Kind, o.GetNamespace(), o.GetName())}
	eventually(t, fmt.Sprintf("%s says %s", o.GetName(), reason), func() error {
		a := &v1alpha1.Assignment{}
		if err := w.Hub.Client.Get(t.Context(), key, a); err != nil {
			return err
		}
		c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionPlaced)
		return errorUnless(c != nil && c.Reason == reason, "%+v", c)
	})
}

// uids are those of objects, in each cluster that has them.
func (w *world) uids(t *testing.T, objects []client.Object) map[string]types.UID {
	t.Helper()
	found := map[string]types.UID{}
	for _, o := range objects {
		for name, c := range w.Clusters {
			if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err == nil {
				found[name+" "+o.GetObjectKind().GroupVersionKind().Kind] = o.GetUID()
			} else if client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
	}
	return found
}

// podsInEast are the UIDs of the Pods there, and how often their containers were restarted.
func (w *world) podsInEast(t *testing.T, ns string) map[string]string {
	t.Helper()
	var list corev1.PodList
	if err := w.Clusters["east"].Client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for i := range list.Items {
		p, restarts := &list.Items[i], int32(0)
		for _, s := range p.Status.ContainerStatuses {
			restarts += s.RestartCount
		}
		found[p.Name] = fmt.Sprintf("%s, %d restarts", p.UID, restarts)
	}
	return found
}

// awaitMoveInProgress waits until a move of web from east to west, or back, has begun and is not done.
func (w *world) awaitMoveInProgress(t *testing.T, ns string) {
	t.Helper()
	eventually(t, "web is in both clusters", func() error {
		found, err := w.replicas(t.Context(), ns, "web")
		if err == nil && (found["east"] == 0 || found["west"] == 0) {
			err = fmt.Errorf("is in %v", found)
		}
		return err
	})
}

// checkGoneFromHub tells what of an object is left at the hub.
func (w *world) checkGoneFromHub(t *testing.T, o client.Object) error {
	t.Helper()
	err := w.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(o), sameKey(o))
	if err == nil {
		return errors.New("it is there still")
	}
	return errors.Join(client.IgnoreNotFound(err), w.checkNoWorks(t, o.GetNamespace()))
}

// checkNoWorks tells which Work there still is of objects in a namespace.
func (w *world) checkNoWorks(t *testing.T, ns string) error {
	t.Helper()
	works := &v1alpha1.WorkList{}
	if err := w.Hub.Client.List(t.Context(), works); err != nil {
		return err
	}
	for _, one := range works.Items {
		if one.Spec.Source.Namespace == ns {
			return fmt.Errorf("Work %s/%s is there still", one.Namespace, one.Name)
		}
	}
	return nil
}

// checkBlocked checks that no move is called blocked sooner than that after the last edit.
func (w *world) checkBlocked(t *testing.T, ns string, edits []time.Time) {
	t.Helper()
	var list corev1.EventList
	if err := w.Hub.Client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Reason != v1alpha1.ConditionMoveBlocked {
			continue
		}
		at := e.FirstTimestamp.Add(time.Second) // it is cut to seconds
		for _, edit := range slices.Backward(edits) {
			if after := at.Sub(edit); after >= 0 {
				if after < blockedAfter {
					t.Errorf("Event of %s %s: %s %s after the edit: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, after, e.Message)
				}
				break
			}
		}
	}
}

// deployment is an ordinary Deployment; annotations and readyAfter may be "".
func deployment(name string, replicas int, clusters, readyAfter string) string {
	if readyAfter == "" {
		readyAfter = "0s"
	}
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s
  annotations: {placement.patchbay.io/clusters: %[3]q}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s}
      annotations: {%[4]s: %[5]q}
    spec:
      containers: [{name: c, image: "registry.example/app:1"}]
`, name, replicas, clusters, bed.ReadyAfter, readyAfter)
}

// plainDeployment is a Deployment as its users know it: nothing of ours is in it.
func plainDeployment(name string, replicas int) string {
	return strings.ReplaceAll(deployment(name, replicas, "", ""), `  annotations: {placement.patchbay.io/clusters: ""}`+"\n", "")
}

func object(apiVersion, kind, ns, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(ns)
	o.SetName(name)
	return o
}
