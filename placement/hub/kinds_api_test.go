// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package hub

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/patchbay-cni/patchbay/placement/hub/internal/standalone"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// The hub is not ready while its API server lacks its kinds, names them, and is ready when they are there.
func TestReadinessWithoutKinds(t *testing.T) {
	t.Parallel()
	env := apitest.New(t)
	// The hub listens twice, before and after it finds the kinds. A port that the kernel chose could be that of
	// another program's connection in between.
	free, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	address := free.String()
	ctx, cancel := context.WithCancel(logr.NewContext(context.WithoutCancel(t.Context()), logr.Discard()))
	done := make(chan error, 1)
	go func() {
		o := &options{healthAddress: address, workers: 1, namespace: "default"}
		done <- runUntilStopped(ctx, func(ctx context.Context) error { return runHub(ctx, env.Config, o) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the hub ended with %v", err)
		}
	})
	awaitReadiness(t, address, http.StatusServiceUnavailable, "must serve the kinds Assignment, Cluster, ClusterPlacement, Customization, Placement, Work of placement.patchbay.io/v1alpha1")
	if err := standalone.Install(t.Context(), env.Config); err != nil {
		t.Fatal(err)
	}
	awaitReadiness(t, address, http.StatusOK, "ok")
	env.Kubectl(t, "delete", "crd", "customizations.placement.patchbay.io")
	awaitReadiness(t, address, http.StatusServiceUnavailable, "must serve the kinds Customization of")
	if err := standalone.Install(t.Context(), env.Config); err != nil {
		t.Fatal(err)
	}
	awaitReadiness(t, address, http.StatusOK, "ok")
}

// awaitReadiness waits until /readyz answers with the status and the text.
func awaitReadiness(t *testing.T, address string, status int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var last string
	for ctx.Err() == nil {
		res, err := http.Get("http://" + address + "/readyz")
		if err == nil {
			var body []byte
			body, err = io.ReadAll(res.Body)
			_ = res.Body.Close()
			if res.StatusCode == status && strings.Contains(string(body), text) {
				return
			}
			last = fmt.Sprintf("%s %s", res.Status, body)
		}
		if err != nil {
			last = err.Error()
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatalf("got %s, want %d with %q", last, status, text)
}
