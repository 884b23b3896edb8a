// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// errKilled is returned for requests that a killed process would not send.
var errKilled = errors.New("killed")

// killedTransport lets a hub make a number of writes. It kills the hub after the last one, or before the next one.
type killedTransport struct {
	next   http.RoundTripper
	kill   context.CancelFunc
	wrote  *atomic.Int32
	most   int32
	before bool
}

func (m killedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	isWrite := r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/events") &&
		!strings.Contains(r.URL.Path, v1alpha1.SystemNamespace+"/deployments") && // each start begins with the probe and the term
		!strings.Contains(r.URL.Path, v1alpha1.SystemNamespace+"/configmaps")
	if isWrite && m.wrote.Load() >= m.most {
		m.kill()
		return nil, errKilled
	}
	response, err := m.next.RoundTrip(r)
	if isWrite && err == nil && response.StatusCode < http.StatusMultipleChoices && m.wrote.Add(1) >= m.most && !m.before {
		m.kill()
	}
	return response, err
}

// runUntilKilled runs a hub until it has made so many writes, or is about to make the next one.
func runUntilKilled(ctx context.Context, config *rest.Config, most int32, before bool) error {
	ctx, kill := context.WithCancel(logr.NewContext(ctx, logr.Discard()))
	defer kill()
	config = rest.CopyConfig(config)
	wrote := &atomic.Int32{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return killedTransport{next, kill, wrote, most, before}
	})
	m, err := newProcess(ctx, config)
	if err != nil {
		return err
	}
	_ = m.Start(ctx) // it was killed
	return nil
}

// runKilledHubs runs hubs, one after the other, until the test ends. The lives are those of the hubs in turn.
func runKilledHubs(t *testing.T, config *rest.Config, lives ...killedTransport) {
	t.Helper()
	hubs := 0
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			life := lives[hubs%len(lives)]
			if err := runUntilKilled(ctx, config, life.most, life.before); err != nil && ctx.Err() == nil {
				ended <- err
				return
			}
			hubs++
		}
		ended <- nil
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		t.Logf("%d hubs were killed", hubs)
	})
}

// A hub that was killed after any of its writes continues where it was: here each hub makes one write.
func TestKilledAfterEveryWrite(t *testing.T) {
	env := apitest.New(t)
	h := newTestHubOn(t, env, 3*time.Minute)
	if err := bed.Install(t.Context(), env.Config, "placement", "CustomResourceDefinition"); err != nil {
		t.Fatal(err)
	}
	runKilledHubs(t, env.Config, killedTransport{most: 1})
	h.placeMoveAndDelete()
	h.moveVolume()
}

// placeMoveAndDelete places, moves, divides and deletes an object with its dependencies. It fails when a
// Work was created without need, was removed too early, or has the value of a Secret.
func (h *testHub) placeMoveAndDelete() {
	h.t.Helper()
	ns := h.namespace("lifecycle")
	h.cluster("east", v1alpha1.ClusterSpec{})
	h.cluster("west", v1alpha1.ClusterSpec{})
	works := h.watchWorks()
	h.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}})
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, StringData: map[string]string{"password": password}}
	h.create(s)
	d := deployment(ns, "web", "east", 3)
	app := &d.Spec.Template.Spec.Containers[0]
	app.EnvFrom = append(app.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}}})
	h.create(d)
	key, config := deploymentKey(ns, "web"), kinds.Key{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Namespace: ns, Name: "web"}
	secret := kinds.Key{GroupKind: schema.GroupKind{Kind: "Secret"}, Namespace: ns, Name: "web"}
	h.expectWorks(key, map[string]int32{"east": 3})
	h.expectWorks(config, map[string]int32{"east": 0})
	h.expectSecret(secret, password, "east")
	works.expectReplicas(3)
	changed := password + "!"
	if err := h.client.Patch(h.t.Context(), s, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"stringData":{"password":%q}}`, changed))); err != nil {
		h.t.Fatal(err)
	}
	h.expectSecret(secret, changed, "east")
	h.annotate(d, "west")
	h.expectWorks(key, map[string]int32{"west": 3})
	h.expectWorks(config, map[string]int32{"west": 0})
	h.expectSecret(secret, changed, "west")
	h.annotate(d, "east=1,west=2")
	h.expectWorks(key, map[string]int32{"east": 1, "west": 2})
	h.expectWorks(config, map[string]int32{"east": 0, "west": 0})
	h.expectSecret(secret, changed, "east", "west")
	works.expectReplicas(0)
	h.delete(d)
	h.expectWorks(key, map[string]int32{})
	h.expectWorks(config, map[string]int32{})
	h.expectSecret(secret, changed)
	h.eventually("all records to be deleted", func(ctx context.Context) error {
		var list v1alpha1.AssignmentList
		if err := h.client.List(ctx, &list, client.InNamespace(ns)); err != nil || len(list.Items) > 0 {
			return fmt.Errorf("%w: %d Assignments, %w", errNotYet, len(list.Items), err)
		}
		err := h.client.Get(ctx, client.ObjectKeyFromObject(d), &appsv1.Deployment{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: the Deployment exists: %w", errNotYet, err)
		}
		return nil
	})
	works.check(map[string]int{
		"east Deployment": 2, "west Deployment": 1,
		"east ConfigMap": 2, "west ConfigMap": 1, "east Secret": 2, "west Secret": 1,
	})
}

// expectSecret waits until these clusters, and no others, have a Work of a Secret, and the data beside it.
func (h *testHub) expectSecret(k kinds.Key, value string, clusters ...string) {
	h.t.Helper()
	want := map[string]int32{}
	for _, cluster := range clusters {
		want[cluster] = 0
	}
	h.expectWorks(k, want)
	h.eventually(fmt.Sprintf("data beside the Works in %v", clusters), func(ctx context.Context) error {
		var list corev1.SecretList
		if err := h.client.List(ctx, &list, client.HasLabels{v1alpha1.SourceUIDLabel}); err != nil {
			return err
		}
		for i := range list.Items {
			data, work := &list.Items[i], &v1alpha1.Work{}
			if err := h.client.Get(ctx, client.ObjectKeyFromObject(data), work); err != nil {
				return err
			}
			version, ref := data.Annotations[v1alpha1.DataVersionAnnotation], work.Spec.Manifests[0].Secret
			if string(data.Data["password"]) != value || ref == nil || ref.Version != version {
				return fmt.Errorf("%w: %s has data of version %s, and its Work names %v", errNotYet, data.Namespace, version, ref)
			}
		}
		if len(list.Items) != len(clusters) {
			return fmt.Errorf("%w: data in %d namespaces", errNotYet, len(list.Items))
		}
		return nil
	})
}

// worksWatch records the events of all Works.
type worksWatch struct {
	*testHub
	least   atomic.Int32 // replicas that the Works of Deployments must request at any time
	sum     atomic.Int32 // of the replicas that they requested last
	watch   watch.Interface
	created map[string]int
	failed  []string
	history []string
	ended   chan struct{}
}

func (h *testHub) watchWorks() *worksWatch {
	h.t.Helper()
	var none v1alpha1.WorkList
	if err := h.client.List(h.t.Context(), &none); err != nil {
		h.t.Fatal(err)
	}
	w, err := toolswatch.NewRetryWatcherWithContext(h.t.Context(), none.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return h.client.Watch(ctx, &v1alpha1.WorkList{}, &client.ListOptions{Raw: &o})
		},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	o := &worksWatch{testHub: h, watch: w, created: map[string]int{}, ended: make(chan struct{})}
	go o.read()
	return o
}

// expectReplicas waits until n replicas are requested, and fails when there are fewer later.
func (o *worksWatch) expectReplicas(n int32) {
	o.t.Helper()
	o.eventually(fmt.Sprintf("the watch to see %d replicas", n), func(context.Context) error {
		if sum := o.sum.Load(); sum < n {
			return fmt.Errorf("%w: %d", errNotYet, sum)
		}
		return nil
	})
	o.least.Store(n)
}

func (o *worksWatch) read() {
	defer close(o.ended)
	requested := map[string]int32{}
	for e := range o.watch.ResultChan() {
		w, ok := e.Object.(*v1alpha1.Work)
		if !ok {
			continue
		}
		cluster, _ := kinds.ClusterOfNamespace(w.Namespace)
		if raw, err := json.Marshal(w); err != nil || hasPassword(raw) {
			o.failed = append(o.failed, fmt.Sprintf("%s/%s has the Secret's value, or cannot be read: %v", w.Namespace, w.Name, err))
		}
		o.history = append(o.history, fmt.Sprintf("%s %s/%s of %s, removal %t", e.Type, w.Namespace, w.UID, w.Spec.Source.Kind, w.Spec.Removal != nil))
		switch e.Type {
		case watch.Added:
			o.created[cluster+" "+w.Spec.Source.Kind]++
		case watch.Deleted:
			if w.Spec.Removal == nil {
				o.failed = append(o.failed, w.Namespace+"/"+w.Name+" was deleted without an order")
			}
		}
		if w.Spec.Source.Kind != "Deployment" {
			continue
		}
		n, _ := scope.RequestedReplicas(w)
		if requested[cluster] = n; e.Type == watch.Deleted || w.Spec.Removal != nil {
			delete(requested, cluster)
		}
		sum := int32(0)
		for _, n := range requested {
			sum += n
		}
		if o.sum.Store(sum); sum < o.least.Load() {
			o.failed = append(o.failed, fmt.Sprintf("%d replicas requested, %v", sum, requested))
		}
	}
}

// hasPassword reports whether a Secret's value is in a text, as it is or encoded as in JSON.
func hasPassword(text []byte) bool {
	encoded := base64.StdEncoding.EncodeToString([]byte(password[:27])) // whole groups of three: what follows does not change them
	return bytes.Contains(text, []byte(password)) || bytes.Contains(text, []byte(encoded))
}

// check ends the watch, and reports what has failed and how often Works were created.
func (o *worksWatch) check(created map[string]int) {
	o.t.Helper()
	o.watch.Stop()
	<-o.ended
	for _, text := range o.failed {
		o.t.Error(text)
	}
	if fmt.Sprint(o.created) != fmt.Sprint(created) {
		o.t.Errorf("Works created: got %v, want %v\n%s", o.created, created, strings.Join(o.history, "\n"))
	}
}
