// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// The hub ends where the API server has workload controllers, and writes nothing before.
func TestPreflightRejectsActiveServer(t *testing.T) {
	env := apitest.New(t)
	h := newTestHubOn(t, env, time.Minute)
	if err := bed.Install(t.Context(), env.Config, "placement", "CustomResourceDefinition"); err != nil {
		t.Fatal(err)
	}
	ctx := logr.NewContext(t.Context(), logr.Discard())
	opts, err := Options(ctx)
	if err != nil {
		t.Fatal(err)
	}
	opts.Logger = logr.Discard()
	m, err := manager.New(env.Config, opts)
	if err != nil {
		t.Fatal(err)
	}
	// On a slow machine, too, the probe exists until the test has found it, and the hub waits.
	if err := Add(ctx, m, Config{probeDuration: time.Minute, preflightWait: time.Minute}); err != nil {
		t.Fatal(err)
	}
	h.create(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "early"}, Spec: v1alpha1.ClusterSpec{Accepted: true}})
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	probe := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: probeName}
	h.eventually("the probe", func(ctx context.Context) error { return h.client.Get(ctx, key, probe) })
	probe.Status.ObservedGeneration = probe.Generation // as its controller would
	if err := h.client.Status().Update(t.Context(), probe); err != nil {
		t.Fatal(err)
	}
	early := client.ObjectKey{Name: v1alpha1.ClusterNamespacePrefix + "early"}
	if err := h.client.Get(t.Context(), early, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("the hub has written before the preflight ended: namespace %s: got %v, want none", early.Name, err)
	}
	if err := <-ended; !errors.Is(err, ErrActive) {
		t.Errorf("Start: got %v, want %v", err, ErrActive)
	}
	if err := h.client.Get(t.Context(), key, probe); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the probe: got %v, want it deleted", err)
	}
}
