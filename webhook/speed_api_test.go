// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

// BenchmarkCreate fills one range with TenantNetworks from 20 clients, all on this
// machine: API server, etcd, admission and clients. It prints the latency that the
// clients see; b.N is not used.
func BenchmarkCreate(b *testing.B) {
	const networks, clients = 5000, 20
	env := apitest.Start(b)
	stop, err := serve(b.Context(), env)
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	ns := env.Namespace(b)
	config, _ := offer(b, env, ns, fmt.Sprintf(`{hostDevices: [{name: "%%", vniType: vxlan, vniRange: "1-%d"}]}`, networks))
	var mu sync.Mutex
	var took []time.Duration
	jobs := make(chan int)
	var g errgroup.Group
	for range clients {
		c, err := client.New(env.Config, client.Options{Scheme: env.Client.Scheme()})
		if err != nil {
			b.Fatal(err)
		}
		g.Go(func() error {
			for i := range jobs {
				tn := tenantNetwork(b, ns, fmt.Sprintf("net%d", i), fmt.Sprintf("{NetworkID: n%d}", i))
				begin := time.Now()
				if err := c.Create(b.Context(), tn); err != nil {
					return err
				}
				mu.Lock()
				took = append(took, time.Since(begin))
				mu.Unlock()
			}
			return nil
		})
	}
	begin, spent := time.Now(), processorTime(b)
	for i := range networks {
		jobs <- i
		if i%1000 == 999 {
			mu.Lock()
			part := slices.Clone(took[max(0, len(took)-1000):])
			mu.Unlock()
			slices.Sort(part)
			b.Logf("%d networks: p50 %v, p99 %v", i+1, part[len(part)/2], part[len(part)*99/100])
		}
	}
	close(jobs)
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99-ms")
	b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "p50-ms")
	b.ReportMetric(float64((processorTime(b)-spent).Microseconds())/networks/1000, "cpu-ms/network")
	b.ReportMetric(networks/time.Since(begin).Seconds(), "networks/s")
	if got := reserved(b, env, config); len(got) != networks {
		b.Errorf("%d reservations, want %d", len(got), networks)
	}
}

// processorTime is what this process and its children have used: API server and etcd.
// On a machine that others use it says more than the latency.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	self, ticks := strconv.Itoa(os.Getpid()), 0
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		// After the name in parentheses: state, ppid, and utime and stime at 11 and 12.
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		if len(fields) < 13 || fields[1] != self && filepath.Base(filepath.Dir(f)) != self {
			continue
		}
		for _, field := range fields[11:13] {
			n, err := strconv.Atoi(field)
			if err != nil {
				b.Fatal(err)
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / 100 // USER_HZ
}
