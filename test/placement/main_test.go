// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// programs may be a folder of programs that were built with -race.
var programs = flag.String("programs", "", "the `folder` with patchbay-hub and patchbay-agent; bin when empty")

// atOnce is how many tests share the bed at a time: they wait most of the time.
const atOnce = "8"

// shared is the bed of all tests of this binary.
var shared *world

// world is a bed with our programs.
type world struct {
	*bed.Bed
	hub    process.ID
	agents map[string]process.ID

	defining sync.Once // of widgets
}

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	log.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	b, err := bed.Launch(ctx, bed.Config{Clusters: []string{"east", "west", "south"}, Programs: *programs})
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
	if err := crashes(b.Dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
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
			if err := w.Accept(ctx, name, v1alpha1.ClusterSpec{}); err != nil {
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

// crashes looks in all logs for what no test waits for: reports of races, and panics.
func crashes(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*", "patchbay-*.log"))
	if err != nil {
		return err
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, sign := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
			if at := strings.Index(string(raw), sign); at >= 0 {
				return fmt.Errorf("%s has:\n%.4000s", file, raw[at:])
			}
		}
	}
	return nil
}
