// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// settled is how long nobody may write at the end of a test (I5).
var settled = flag.Duration("settled", 5*time.Second, "how long nothing may be written once a test has settled; the contract says 60s")

// shared is the bed of all tests of this binary.
var shared *world

// world is a bed with our programs.
type world struct {
	*bed.Bed
	hub    process.ID
	agents map[string]process.ID
}

func TestMain(m *testing.M) {
	flag.Parse()
	log.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	b, err := bed.Launch(ctx, bed.Config{Clusters: []string{"east", "west", "south"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared = &world{Bed: b, agents: map[string]process.ID{}}
	code := 1
	if err := shared.start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	if code != 0 {
		b.Keep()
		fmt.Fprintln(os.Stderr, "logs are in", b.Dir)
	}
	if err := b.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// start runs hub and agents, and waits until all clusters are reachable.
func (w *world) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	if w.hub, err = w.StartHub(ctx); err != nil {
		return err
	}
	var g errgroup.Group
	ids := map[string]*process.ID{"east": {}, "west": {}, "south": {}}
	for name, id := range ids {
		g.Go(func() error {
			if err := w.Accept(ctx, name, v1alpha1.ClusterSpec{}); err != nil {
				return err
			}
			var err error
			*id, err = w.StartAgent(ctx, name)
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
