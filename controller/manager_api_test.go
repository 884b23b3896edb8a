// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
)

// A replica becomes ready when it can answer the API server: a rollout that continued earlier would
// leave no replica that answers.
func TestReadyOnceAdmissionAnswers(t *testing.T) {
	env := apitest.Start(t)
	address := freeAddress(t)
	r := startWith(t, env, &options{namespace: namespace, healthAddress: freeAddress(t), webhookAddress: address, nodeGrace: time.Minute, leaderElect: true})
	eventually(t, "the replica to name what is missing", func(ctx context.Context) error {
		if err := r.ready(ctx); err == nil || !strings.Contains(err.Error(), "certificate authority") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	for _, o := range configurations(t, "https://"+address) {
		if err := env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = env.Client.Delete(context.Background(), o) })
	}
	eventually(t, "the replica to be ready", r.ready)
	// The controller's rights suffice to inject the path and the authority.
	for _, o := range configurations(t, "") {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		if err := trusted(o); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	if err := r.stop(); err != nil {
		t.Errorf("the replica ended with %v", err)
	}
}

// The leader writes the view of a new namespace without waiting for the interval.
func TestLeaderKeepsNetworkViews(t *testing.T) {
	env := apitest.Start(t)
	r := startWith(t, env, &options{namespace: namespace, healthAddress: freeAddress(t), nodeGrace: time.Minute, leaderElect: true})
	ns := ""
	expectView := func(ctx context.Context) error {
		return env.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: v1.NetworkViewName}, &v1.NetworkView{})
	}
	for range 2 {
		ns = env.Namespace(t)
		eventually(t, "the view of namespace "+ns, expectView)
	}
	if err := r.stop(); err != nil {
		t.Errorf("the replica ended with %v", err)
	}
}

// configurations returns those of deployments/webhooks, with a URL in place of the Service.
func configurations(t *testing.T, url string) []*unstructured.Unstructured {
	t.Helper()
	folder, err := source.Path("deployments", "webhooks")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := apitest.ReadManifests(folder)
	if err != nil {
		t.Fatal(err)
	}
	var found []*unstructured.Unstructured
	for _, o := range objects {
		if !strings.HasSuffix(o.GetKind(), "WebhookConfiguration") {
			continue
		}
		hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		for _, h := range hooks {
			if hook, ok := h.(map[string]any); ok {
				hook["clientConfig"] = map[string]any{"url": url}
			}
		}
		o.Object["webhooks"] = hooks
		found = append(found, o)
	}
	return found
}

// trusted checks that each webhook has an authority and a path.
func trusted(o *unstructured.Unstructured) error {
	hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	if len(hooks) == 0 {
		return errors.New("no webhook")
	}
	for _, h := range hooks {
		hook, _ := h.(map[string]any)
		bundle, _, _ := unstructured.NestedString(hook, "clientConfig", "caBundle")
		url, _, _ := unstructured.NestedString(hook, "clientConfig", "url")
		if name, _ := hook["name"].(string); bundle == "" || !strings.Contains(url, "/"+name+"/") {
			return fmt.Errorf("webhook %s at %s, authority of %d bytes", name, url, len(bundle))
		}
	}
	return nil
}
