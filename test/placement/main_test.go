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
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// quietPeriod is how long nobody may write at the end of a test (I5).
var quietPeriod = flag.Duration("settled", 5*time.Second, "how long nothing may be written once a test has settled; the contract says 60s")

// programsDir may be a folder of programs that were built with -race.
var programsDir = flag.String("programs", "", "the `folder` with patchbay-hub and patchbay-agent; bin when empty")

// parallelTests is how many tests share the bed at a time. They wait a part of the time, but each with
// a hub of its own starts two API servers.
const parallelTests = "4"

// shared is the bed of all tests of this binary.
var shared *world

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	log.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	b, err := bed.Launch(ctx, bed.Config{Clusters: []string{"east", "west", "south"}, Programs: *programsDir})
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
	if err := findCrashes(b.Dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code != 0 {
		b.KeepDir()
		fmt.Fprintln(os.Stderr, "logs are in", b.Dir)
	}
	if err := b.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// findCrashes looks in all logs for what no test waits for: reports of races, and panics.
func findCrashes(dir string) error {
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
