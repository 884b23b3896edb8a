// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/source"
)

// startTimeout bounds the start of a control plane, on a machine where other test
// binaries start theirs.
const startTimeout = 5 * time.Minute

// Env is a running API server, ready for Patchbay's objects.
type Env struct {
	// Plane is the control plane, for tests that stop or break it (see New).
	Plane *controlplane.ControlPlane
	// Config is the admin's client configuration.
	Config *rest.Config
	// Client is the admin's client. It knows Kubernetes' kinds and Patchbay's, reads
	// past any cache, and is not throttled.
	Client client.WithWatch

	dir, bin string
}

// New starts an API server for this test alone.
func New(tb testing.TB) *Env {
	tb.Helper()
	return create(tb, Launch)
}

// NewOldest is New with the oldest Kubernetes that Patchbay runs on.
func NewOldest(tb testing.TB) *Env {
	tb.Helper()
	return create(tb, launchOldest)
}

func create(tb testing.TB, launch func(context.Context) (*Env, error)) *Env {
	tb.Helper()
	env, err := launch(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := env.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return env
}

// Launch starts an API server for a program that is no test. Close ends it.
func Launch(ctx context.Context) (*Env, error) { return launch(ctx, controlplane.Config{}) }

func launchOldest(ctx context.Context) (*Env, error) {
	return launch(ctx, controlplane.Config{Bin: "oldest"})
}

// launchWithControllers runs Kubernetes' controllers that decide about others' objects and
// rights, and starts them again after the installation: the garbage collector looks for
// new definitions every 30 s only.
func launchWithControllers(ctx context.Context) (*Env, error) {
	const manager = controlplane.ControllerManager
	controllers := "--controllers=garbage-collector-controller,namespace-controller,serviceaccount-controller," +
		"root-ca-certificate-publisher-controller,clusterrole-aggregation-controller"
	env, err := launch(ctx, controlplane.Config{
		ControllerManager: true, ExtraArgs: map[controlplane.Part][]string{manager: {controllers}},
	})
	if err != nil {
		return nil, err
	}
	if err := env.Plane.Restart(ctx, manager); err != nil {
		return nil, errors.Join(err, env.Close(context.WithoutCancel(ctx)))
	}
	return env, nil
}

// launch starts a control plane with the programs of a folder below bin/kubernetes.
func launch(ctx context.Context, config controlplane.Config) (*Env, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	bin, err := source.Path("bin", "kubernetes")
	if err != nil {
		return nil, err
	}
	// The usual folder for temporary files keeps the path short: etcd's socket is in it.
	dir, err := os.MkdirTemp("", "apitest")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	env := &Env{dir: dir, bin: bin}
	config.Dir, config.Bin, config.Tied = dir, filepath.Join(bin, config.Bin), true
	env.Plane, err = controlplane.Start(ctx, config)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := env.prepare(ctx); err != nil {
		return nil, errors.Join(err, env.Close(context.WithoutCancel(ctx)))
	}
	return env, nil
}

// prepare makes the client and installs what deployments/ has.
func (e *Env) prepare(ctx context.Context) error {
	e.Config = e.Plane.RESTConfig()
	var err error
	if e.Client, err = newClient(e.Config); err != nil {
		return err
	}
	if err := install(ctx, e.Client); err != nil {
		return err
	}
	if err := awaitServed(ctx, e.Config, e.Client); err != nil {
		return err
	}
	return awaitRights(ctx, e.Client)
}

// Close ends the API server and removes all that it stored.
func (e *Env) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return errors.Join(e.Plane.Destroy(ctx), os.RemoveAll(e.dir))
}

// Kubectl runs kubectl as the admin and returns what it prints on standard output.
func (e *Env) Kubectl(tb testing.TB, args ...string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), filepath.Join(e.bin, "kubectl"), args...)
	// HOME is where kubectl caches discovery, which another server must not see.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.Plane.AdminKubeconfig(), "HOME="+e.dir)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		tb.Fatalf("kubectl %v: %v\n%s", args, err, exit.Stderr)
	}
	if err != nil {
		tb.Fatalf("kubectl %v: %v", args, err)
	}
	return string(out)
}
