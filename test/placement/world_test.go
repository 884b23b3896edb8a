// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// world is a bed with our programs.
type world struct {
	*bed.Bed
	hub    process.ID
	agents map[string]process.ID

	widgetsOnce sync.Once // of widgets
}

// start runs hub and agents, and waits until all clusters are reachable.
func (w *world) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	err := bed.Install(ctx, w.Hub.Config, "crds", "CustomResourceDefinition") // our networks are placeable
	if err != nil {
		return err
	}
	if w.hub, err = w.StartHub(ctx); err != nil {
		return err
	}
	var g errgroup.Group
	ids := map[string]*process.ID{}
	for name := range w.Clusters {
		ids[name] = &process.ID{}
	}
	for name, id := range ids {
		g.Go(func() error {
			if err := w.CreateCluster(ctx, name, v1alpha1.ClusterSpec{}); err != nil {
				return err
			}
			err := bed.Install(ctx, w.Clusters[name].Config, "crds", "CustomResourceDefinition")
			if err == nil {
				*id, err = w.StartAgent(ctx, name)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for name, id := range ids {
		w.agents[name] = *id
	}
	return w.awaitClusters(ctx)
}

// awaitClusters waits until the hub reaches all clusters.
func (w *world) awaitClusters(ctx context.Context) error {
	for {
		var list v1alpha1.ClusterList
		err := w.Hub.Client.List(ctx, &list)
		reached := 0
		for _, c := range list.Items {
			if meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReachable) && len(c.Status.Allocatable) > 0 {
				reached++
			}
		}
		if err == nil && reached == len(w.Clusters) {
			return nil
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return fmt.Errorf("await clusters: %d of %d are reachable: %w (last: %w)", reached, len(w.Clusters), ctx.Err(), err)
		}
	}
}

// restartHub brings back the hub that all tests share.
func (w *world) restartHub(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	var err error
	if w.hub, err = w.StartHub(ctx); err != nil {
		t.Error(err)
	}
}

// whileHubStopped does something while neither the hub's API server nor its etcd runs.
func (w *world) whileHubStopped(t *testing.T, do func() error) {
	t.Helper()
	c := w.Hub.ControlPlane
	for _, part := range []controlplane.Part{controlplane.APIServer, controlplane.Etcd} {
		if err := c.StopPart(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	if err := do(); err != nil {
		t.Fatal(err)
	}
	for _, part := range []controlplane.Part{controlplane.Etcd, controlplane.APIServer} {
		if err := c.StartPart(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
}

// replaceEtcdData puts other data into the hub's etcd. A hub that has them is what it was then.
func (w *world) replaceEtcdData(t *testing.T, x *invariantChecker, then []write, fill func(data string) error) {
	t.Helper()
	data, now := w.Hub.ControlPlane.EtcdData(), x.liveObjects(t, w)
	w.whileHubStopped(t, func() error {
		x.restartFrom(t, then, now)
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		return fill(data)
	})
}

// newWorld is a world of its own, with the cluster east.
func newWorld(t *testing.T) *world {
	t.Helper()
	b, err := bed.Launch(t.Context(), bed.Config{Clusters: []string{"east"}, Programs: *programsDir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			b.KeepDir()
			t.Log("logs are in", b.Dir)
		}
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	w := &world{Bed: b, agents: map[string]process.ID{}}
	if err := w.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// patchCluster patches a Cluster, as an infrastructure person does.
func (w *world) patchCluster(t *testing.T, name, patch string) {
	t.Helper()
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := w.Hub.Client.Patch(context.Background(), c, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// awaitReachable waits until the hub hears of a cluster's agent.
func (w *world) awaitReachable(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" is reachable", func() error {
		c := cluster(name)
		if err := w.Hub.Client.Get(context.Background(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		return errorUnless(meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReachable), "conditions %+v", c.Status.Conditions)
	})
}

// checkReachable fails when the hub takes the cluster for unreachable.
func (w *world) checkReachable(t *testing.T, cluster string) {
	t.Helper()
	c := &v1alpha1.Cluster{}
	if err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Name: cluster}, c); err != nil {
		t.Fatal(err)
	}
	if !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReachable) {
		t.Fatalf("%s is not reachable: %+v", cluster, c.Status.Conditions)
	}
}

// awaitMismatch waits until the hub knows whether east has halted some Works.
func (w *world) awaitMismatch(t *testing.T, want bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("HubMismatch of east is %t", want), func() error {
		c := &v1alpha1.Cluster{}
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Name: "east"}, c); err != nil {
			return err
		}
		found := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionHubMismatch)
		if found == nil || (found.Status == metav1.ConditionTrue) != want {
			return fmt.Errorf("conditions %+v", c.Status.Conditions)
		}
		return nil
	})
}

// joinAgent has the agent of a cluster join anew by a way, until the test ends.
func (w *world) joinAgent(t *testing.T, cluster string, way bed.HubRoute) {
	t.Helper()
	w.rejoin(t, cluster, way)
	t.Cleanup(func() {
		ctx := context.Background()
		err := w.agents[cluster].Kill(ctx)
		if err == nil {
			w.agents[cluster], err = w.StartAgent(ctx, cluster)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.awaitHeartbeat(t, cluster, cluster)
	})
}

func (w *world) rejoin(t *testing.T, cluster string, way bed.HubRoute) {
	t.Helper()
	err := w.agents[cluster].Kill(t.Context())
	if err == nil {
		w.agents[cluster], err = w.StartAgentVia(t.Context(), cluster, apitest.Name(cluster), way)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// namespace makes a namespace of the test's own at the hub.
func (w *world) namespace(t *testing.T) string {
	t.Helper()
	name := apitest.Name("test")
	if err := w.Hub.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	return name
}

// newUserClient is a service account of the test's namespace with a token of its own and one of
// the roles there are, in a namespace or everywhere, that may use these clusters.
func (w *world) newUserClient(t *testing.T, ns, name, role, where, clusters string) client.Client {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	meta := metav1.ObjectMeta{Name: name + "-" + ns, Namespace: where}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}}
	objects := []client.Object{account}
	switch where {
	case "":
		objects = append(objects, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: roleRef("ClusterRole", role)})
	case metav1.NamespaceSystem:
		objects = append(objects, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: roleRef("Role", role)})
	default:
		objects = append(objects, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: roleRef("ClusterRole", role)})
	}
	if clusters != "" {
		use := metav1.ObjectMeta{Name: "use-" + name + "-" + ns}
		objects = append(objects,
			&rbacv1.ClusterRole{ObjectMeta: use, Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"clusters"}, ResourceNames: strings.Split(clusters, ","), Verbs: []string{"use"},
			}}},
			&rbacv1.ClusterRoleBinding{ObjectMeta: use, Subjects: subjects, RoleRef: roleRef("ClusterRole", use.Name)})
	}
	for _, o := range objects {
		if err := w.Hub.Client.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	config, err := w.Hub.AccountConfig(t.Context(), ns, name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: bed.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func roleRef(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

// widgets define a kind of somebody else's, and let the agents write it.
const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.test.example.com}
spec:
  group: test.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: widgets
  labels: {placement.patchbay.io/aggregate-to-agent: "true"}
rules:
  - {apiGroups: [test.example.com], resources: [widgets], verbs: [get, list, watch, create, patch, delete]}
`

// installWidgets installs widgets at the hub and in all clusters, once, and waits until the hub's
// client knows them.
func (w *world) installWidgets(t *testing.T) {
	t.Helper()
	w.widgetsOnce.Do(func() {
		w.apply(t, w.Hub.Client, "", widgets)
		for _, c := range w.Clusters {
			w.apply(t, c.Client, "", widgets)
		}
	})
	eventually(t, "the hub serves widgets", func() error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("test.example.com/v1")
		list.SetKind("WidgetList")
		return w.Hub.Client.List(t.Context(), list)
	})
}
