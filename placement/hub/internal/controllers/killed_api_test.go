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
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// errDead is what a process that was killed would not even get.
var errDead = errors.New("killed")

// mortal lets a hub make one write, and kills it then.
type mortal struct {
	next  http.RoundTripper
	kill  context.CancelFunc
	wrote *atomic.Bool
}

func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	ours := r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/events") &&
		!strings.Contains(r.URL.Path, v1alpha1.SystemNamespace+"/deployments") && // the probe and the term come first each time
		!strings.Contains(r.URL.Path, v1alpha1.SystemNamespace+"/configmaps")
	if ours && m.wrote.Load() {
		return nil, errDead
	}
	response, err := m.next.RoundTrip(r)
	if ours && err == nil && response.StatusCode < http.StatusMultipleChoices {
		m.wrote.Store(true)
		m.kill()
	}
	return response, err
}

// once runs a hub until it has made one write.
func once(ctx context.Context, config *rest.Config) error {
	ctx, kill := context.WithCancel(logr.NewContext(ctx, logr.Discard()))
	defer kill()
	config = rest.CopyConfig(config)
	wrote := &atomic.Bool{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return mortal{next, kill, wrote} })
	m, err := newProcess(ctx, config)
	if err != nil {
		return err
	}
	_ = m.Start(ctx) // it did not end well
	return nil
}

// A hub that is killed after any of its writes goes on where it was: here none lives
// longer than one write.
func TestKilledAfterEveryWrite(t *testing.T) {
	env := apitest.New(t)
	b := newBenchOn(t, env, 3*time.Minute)
	if err := bed.Install(t.Context(), env.Config, "placement", "CustomResourceDefinition"); err != nil {
		t.Fatal(err)
	}
	lives := 0
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := once(ctx, env.Config); err != nil && ctx.Err() == nil {
				ended <- err
				return
			}
			lives++
		}
		ended <- nil
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		t.Logf("%d hubs, each killed at its first write", lives)
	})
	b.live()
}

// live has an object and what goes along placed, moved, divided and deleted, and looks that no
// Work was made that was not needed, none taken away too early, and none has a Secret's value.
func (b *bench) live() {
	b.t.Helper()
	ns := b.namespace("life")
	b.cluster("east", v1alpha1.ClusterSpec{})
	b.cluster("west", v1alpha1.ClusterSpec{})
	orders := b.follow()
	b.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}})
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, StringData: map[string]string{"password": password}}
	b.create(s)
	d := deployment(ns, "web", "east", 3)
	app := &d.Spec.Template.Spec.Containers[0]
	app.EnvFrom = append(app.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}}})
	b.create(d)
	key, config := deploymentKey(ns, "web"), Key{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Namespace: ns, Name: "web"}
	secret := Key{GroupKind: schema.GroupKind{Kind: "Secret"}, Namespace: ns, Name: "web"}
	b.runs(key, map[string]int32{"east": 3})
	b.runs(config, map[string]int32{"east": 0})
	b.has(secret, password, "east")
	orders.keep(3)
	changed := password + "!"
	if err := b.client.Patch(b.t.Context(), s, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"stringData":{"password":%q}}`, changed))); err != nil {
		b.t.Fatal(err)
	}
	b.has(secret, changed, "east")
	b.annotate(d, "west")
	b.runs(key, map[string]int32{"west": 3})
	b.runs(config, map[string]int32{"west": 0})
	b.has(secret, changed, "west")
	b.annotate(d, "east=1,west=2")
	b.runs(key, map[string]int32{"east": 1, "west": 2})
	b.runs(config, map[string]int32{"east": 0, "west": 0})
	b.has(secret, changed, "east", "west")
	b.gone(d, orders)
	b.runs(key, map[string]int32{})
	b.runs(config, map[string]int32{})
	b.has(secret, changed)
	b.eventually("all records to go", func(ctx context.Context) error {
		var list v1alpha1.AssignmentList
		if err := b.client.List(ctx, &list, client.InNamespace(ns)); err != nil || len(list.Items) > 0 {
			return fmt.Errorf("%w: %d Assignments, %w", errNotYet, len(list.Items), err)
		}
		err := b.client.Get(ctx, client.ObjectKeyFromObject(d), &appsv1.Deployment{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: the Deployment is there: %w", errNotYet, err)
		}
		return nil
	})
	orders.check(map[string]int{
		"east Deployment": 2, "west Deployment": 1,
		"east ConfigMap": 2, "west ConfigMap": 1, "east Secret": 2, "west Secret": 1,
	})
}

// has waits until these clusters, and no others, have a Work of a Secret, and the data beside it.
func (b *bench) has(k Key, value string, clusters ...string) {
	b.t.Helper()
	want := map[string]int32{}
	for _, cluster := range clusters {
		want[cluster] = 0
	}
	b.runs(k, want)
	b.eventually(fmt.Sprintf("data beside the Works in %v", clusters), func(ctx context.Context) error {
		var list corev1.SecretList
		if err := b.client.List(ctx, &list, client.HasLabels{v1alpha1.SourceUIDLabel}); err != nil {
			return err
		}
		for i := range list.Items {
			data, work := &list.Items[i], &v1alpha1.Work{}
			if err := b.client.Get(ctx, client.ObjectKeyFromObject(data), work); err != nil {
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

// gone deletes the Deployment.
func (b *bench) gone(d *appsv1.Deployment, o *orders) {
	b.t.Helper()
	o.keep(0)
	if err := b.client.Delete(b.t.Context(), d); err != nil {
		b.t.Fatal(err)
	}
}

// orders are what a watch sees of Works: what was asked, created and deleted.
type orders struct {
	*bench
	least   atomic.Int32 // replicas that must be asked for at any time
	sum     atomic.Int32 // of them, as last seen
	watch   watch.Interface
	created map[string]int
	wrong   []string
	history []string
	ended   chan struct{}
}

func (b *bench) follow() *orders {
	b.t.Helper()
	var none v1alpha1.WorkList
	if err := b.client.List(b.t.Context(), &none); err != nil {
		b.t.Fatal(err)
	}
	w, err := toolswatch.NewRetryWatcherWithContext(b.t.Context(), none.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return b.client.Watch(ctx, &v1alpha1.WorkList{}, &client.ListOptions{Raw: &o})
		},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	o := &orders{bench: b, watch: w, created: map[string]int{}, ended: make(chan struct{})}
	go o.read()
	return o
}

// keep watches that so many are asked for, once the watch has seen them.
func (o *orders) keep(n int32) {
	o.t.Helper()
	o.eventually(fmt.Sprintf("the watch to see %d replicas", n), func(context.Context) error {
		if sum := o.sum.Load(); sum < n {
			return fmt.Errorf("%w: %d", errNotYet, sum)
		}
		return nil
	})
	o.least.Store(n)
}

func (o *orders) read() {
	defer close(o.ended)
	asked := map[string]int32{}
	for e := range o.watch.ResultChan() {
		w, ok := e.Object.(*v1alpha1.Work)
		if !ok {
			continue
		}
		cluster, _ := clusterOf(w.Namespace)
		if raw, err := json.Marshal(w); err != nil || hasPassword(raw) {
			o.wrong = append(o.wrong, fmt.Sprintf("%s/%s has the Secret's value, or cannot be read: %v", w.Namespace, w.Name, err))
		}
		o.history = append(o.history, fmt.Sprintf("%s %s/%s of %s, removal %t", e.Type, w.Namespace, w.UID, w.Spec.Source.Kind, w.Spec.Removal != nil))
		switch e.Type {
		case watch.Added:
			o.created[cluster+" "+w.Spec.Source.Kind]++
		case watch.Deleted:
			if w.Spec.Removal == nil {
				o.wrong = append(o.wrong, w.Namespace+"/"+w.Name+" was deleted without an order")
			}
		}
		if w.Spec.Source.Kind != "Deployment" {
			continue
		}
		n, _ := replicasIn(w)
		if asked[cluster] = n; e.Type == watch.Deleted || w.Spec.Removal != nil {
			delete(asked, cluster)
		}
		sum := int32(0)
		for _, n := range asked {
			sum += n
		}
		if o.sum.Store(sum); sum < o.least.Load() {
			o.wrong = append(o.wrong, fmt.Sprintf("%d replicas asked for, %v", sum, asked))
		}
	}
}

// hasPassword tells whether a Secret's value is in a text, as it is or as JSON has it.
func hasPassword(text []byte) bool {
	encoded := base64.StdEncoding.EncodeToString([]byte(password[:27])) // whole groups: what follows changes nothing
	return bytes.Contains(text, []byte(password)) || bytes.Contains(text, []byte(encoded))
}

// check says what was wrong, and how often Works were made.
func (o *orders) check(created map[string]int) {
	o.t.Helper()
	o.watch.Stop()
	<-o.ended
	for _, text := range o.wrong {
		o.t.Error(text)
	}
	if fmt.Sprint(o.created) != fmt.Sprint(created) {
		o.t.Errorf("Works made: got %v, want %v\n%s", o.created, created, strings.Join(o.history, "\n"))
	}
}
