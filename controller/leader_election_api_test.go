// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/controller/admissiontest"
	"github.com/patchbay-cni/patchbay/internal/manager"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	apitest.Main(m)
}

const namespace = "patchbay-system"

// replica is one controller with the rights of its ServiceAccount.
type replica struct {
	url  string
	stop func() error
}

// start runs a replica until it is stopped.
func start(t *testing.T, env *apitest.Env) *replica {
	t.Helper()
	return startWith(t, env, &options{namespace: namespace, healthAddress: freeAddress(t), nodeGrace: time.Minute, leaderElect: true})
}

// startWith is start with flags.
func startWith(t *testing.T, env *apitest.Env, o *options) *replica {
	t.Helper()
	cfg := env.ConfigAs(apitest.Identity{
		UserName: "system:serviceaccount:" + namespace + ":patchbay-controller", Groups: []string{"system:authenticated"},
	})
	ctx, cancel := context.WithCancel(logr.NewContext(context.WithoutCancel(t.Context()), testLogger(t)))
	m, err := newManager(ctx, cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- manager.Run(ctx, m) }()
	stop := sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return &replica{url: "http://" + o.healthAddress, stop: stop}
}

// testLogger logs until the test ends. A manager that has stopped may still report that it lost the
// Lease, and testing.T panics then.
func testLogger(t *testing.T) logr.Logger {
	t.Helper()
	var mu sync.Mutex
	ended := false
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
	})
	return funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			t.Log(prefix, args)
		}
	}, funcr.Options{})
}

// freeAddress returns a free address of the loopback.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := admissiontest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// eventually polls until try succeeds, for a minute at most.
func eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited a minute for %s: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ready returns nil when a replica is ready.
func (r *replica) ready(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/readyz", nil)
	if err != nil {
		return err
	}
	reply, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if text, _ := io.ReadAll(reply.Body); reply.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", reply.Status, text)
	}
	return nil
}

// holder returns the identity of the leader.
func holder(ctx context.Context, env *apitest.Env) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: leaseName}, lease); err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", errors.New("no replica leads")
	}
	return *lease.Spec.HolderIdentity, nil
}

// A leader that stops in order releases the Lease, so that the other replica does not wait for its
// expiry, which takes 15 s.
func TestLeaderHandsOver(t *testing.T) {
	env := apitest.Start(t)
	first := start(t, env)
	eventually(t, "the first replica", first.ready)
	var leader string
	eventually(t, "a leader", func(ctx context.Context) (err error) {
		leader, err = holder(ctx, env)
		return err
	})
	second := start(t, env)
	eventually(t, "the second replica, which does not lead", second.ready)
	if now, err := holder(t.Context(), env); err != nil || now != leader {
		t.Errorf("%s leads, %v, want still %s", now, err, leader)
	}
	if err := first.stop(); err != nil {
		t.Errorf("the leader stopped with %v", err)
	}
	if now, err := holder(t.Context(), env); err == nil && now == leader {
		t.Error("the leader has stopped, and still holds the Lease")
	}
	eventually(t, "the second to lead", func(ctx context.Context) error {
		now, err := holder(ctx, env)
		if err == nil && now == leader {
			err = errors.New("the first one still leads")
		}
		return err
	})
	if err := second.stop(); err != nil {
		t.Errorf("the second replica stopped with %v", err)
	}
}
