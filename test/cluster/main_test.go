// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/lab"
	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// What the tests know of the lab.
const (
	busybox = "patchbay.local/busybox:lab"
	trunk   = "ens4"
	// waitTimeout is how long anything may take that users wait for, on a slow
	// machine with everything on two cores.
	waitTimeout = 10 * time.Minute
	// reportAfter is a wait worth a line in the test's output.
	reportAfter = 5 * time.Second
)

// nodes is how many the tests have. What two nodes agree on by chance, three do not.
const nodes = 3

// cluster is the lab that all tests of this package share: nodes that run Patchbay
// from deployments/.
type cluster struct {
	client.Client
	lab   *lab.Lab
	nodes []string
}

var shared *cluster // TestMain has no other way to hand it to tests

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	ctx, stop := lab.EndOnInterrupt()
	defer stop()
	// LAB names a lab that is up and stays, for a tight loop while developing.
	name, kept := os.LookupEnv("LAB")
	if !kept {
		name = fmt.Sprintf("test-%d", os.Getpid())
	}
	config := lab.Config{Name: name, Nodes: nodes, Install: true, Progress: os.Stderr}
	if !kept {
		// What a killed run leaves is found, and removed, by the next one's tests.
		config.Owner, _ = process.Of(os.Getpid())
	}
	starting, cancel := context.WithTimeout(ctx, 2*waitTimeout)
	defer cancel()
	l, err := lab.Up(starting, config)
	defer func() {
		if kept {
			return
		}
		if err := lab.Down(context.WithoutCancel(ctx), name); err != nil {
			fmt.Fprintf(os.Stderr, "end lab %s: %v\n", name, err)
			code = max(code, 1)
		}
	}()
	if err == nil {
		shared, err = connect(ctx, l)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "start lab %s: %v\n", name, err)
		collect(ctx, name)
		return 1
	}
	if code = m.Run(); code != 0 {
		collect(ctx, name)
	}
	return code
}

// connect makes the tests' client and their first network, eth0's.
func connect(ctx context.Context, l *lab.Lab) (*cluster, error) {
	config, err := l.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 200, 400
	config.WarningHandler = rest.NoWarnings{} // that v1 Endpoints are deprecated is known
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	nodes, err := l.Nodes()
	if err != nil {
		return nil, err
	}
	eth0 := clusterNetwork(v1.DefaultNetworkName, "pods", "bridge", v1.NetworkOptions{})
	if err := c.Create(ctx, eth0); client.IgnoreAlreadyExists(err) != nil {
		return nil, fmt.Errorf("create network of eth0: %w", err)
	}
	return &cluster{Client: c, lab: l, nodes: nodes}, nil
}

// collect puts all logs of the lab into one folder and says which. It names the containers
// of Patchbay that were restarted, since a crash loop looks like a slow machine to a test.
func collect(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", name+"-logs-")
	if err == nil {
		var l *lab.Lab
		if l, err = lab.Open(name); err == nil {
			err = l.Logs(ctx, dir)
			restarts, asked := l.Restarts(ctx)
			fmt.Fprint(os.Stderr, restarts)
			err = errors.Join(err, asked)
		}
	}
	fmt.Fprintf(os.Stderr, "the lab's logs are in %s (error: %v)\n", dir, err)
}

// await polls until check returns "", or fails the test with what it said last.
func (c *cluster) await(ctx context.Context, t *testing.T, what string, check func(context.Context) string) {
	t.Helper()
	c.awaitFor(ctx, t, waitTimeout, what, check)
}

// awaitFor is await for what has a time of its own: a look that began within it
// counts, however long it takes.
func (c *cluster) awaitFor(
	ctx context.Context, t *testing.T, limit time.Duration, what string, check func(context.Context) string,
) {
	t.Helper()
	const pause = 250 * time.Millisecond
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit+waitTimeout)
	defer cancel()
	for last := ""; ; {
		asked := time.Now()
		now := check(ctx)
		if now == "" {
			if took := time.Since(began); took > reportAfter {
				t.Logf("waited %v until %s", took.Round(time.Second), what)
			}
			return
		}
		if ctx.Err() == nil {
			last = now // what a canceled request says helps nobody
		}
		if ctx.Err() != nil || time.Since(began) > limit {
			t.Fatalf("waited %v until %s: %s", time.Since(began).Round(time.Second), what, last)
		}
		select {
		case <-ctx.Done():
		// Who looks all the time slows down what it waits for.
		case <-time.After(max(pause, time.Since(asked))):
		}
	}
}
