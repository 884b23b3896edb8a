// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkAttachDetach measures ADD and DEL of one MACVLAN with one IPv4 address in milliseconds, of this package and of the
// reference plugins macvlan and host-local, with 1 and with 16 Pods in flight.
func BenchmarkAttachDetach(b *testing.B) {
	for _, inFlight := range []int{1, 16} {
		b.Run(fmt.Sprintf("Ours/InFlight%d", inFlight), func(b *testing.B) { benchPatchbay(b, inFlight) })
		b.Run(fmt.Sprintf("Reference/InFlight%d", inFlight), func(b *testing.B) { benchReference(b, inFlight) })
	}
}

func benchPatchbay(b *testing.B, inFlight int) {
	b.Helper()
	host, _ := newHost(b, 1500)
	k := openKernel(b, host)
	rounds(b, inFlight, func(i int, pod string) (add, del func() error) {
		s := withDefaults(Slave{PodInterface: PodInterface{V4: prefix(fmt.Sprintf("10.0.0.%d/24", i+1))}}, pod)
		return func() error { _, err := k.Slaves().Attach(b.Context(), s); return err },
			func() error { return k.Slaves().Detach(b.Context(), s) }
	})
}

// referenceDir is Debian's directory of the reference plugins.
const referenceDir = "/usr/lib/cni"

func benchReference(b *testing.B, inFlight int) {
	b.Helper()
	if _, err := os.Stat(referenceDir + "/macvlan"); err != nil {
		b.Fatalf("find the reference plugins (make packages installs them): %v", err)
	}
	host, _ := newHost(b, 1500)
	config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"bench","type":"macvlan","master":"ens4",
		"ipam":{"type":"host-local","subnet":"10.0.0.0/24","dataDir":%q}}`, b.TempDir())
	rounds(b, inFlight, func(i int, pod string) (add, del func() error) {
		run := func(verb string) func() error {
			return func() error {
				cmd := exec.Command("nsenter", "--net="+host, referenceDir+"/macvlan")
				cmd.Stdin = strings.NewReader(config)
				cmd.Env = []string{
					"CNI_COMMAND=" + verb, fmt.Sprintf("CNI_CONTAINERID=pod%d", i), "CNI_NETNS=" + pod,
					"CNI_IFNAME=eth1", "CNI_PATH=" + referenceDir, "PATH=" + os.Getenv("PATH"),
				}
				out, err := cmd.CombinedOutput()
				if err != nil {
					return fmt.Errorf("%s: %w: %s", verb, err, out)
				}
				return nil
			}
		}
		return run("ADD"), run("DEL")
	})
}

// rounds runs all ADDs at once, then all DELs, and reports the mean duration of each.
func rounds(b *testing.B, inFlight int, calls func(i int, pod string) (add, del func() error)) {
	b.Helper()
	var adds, dels []func() error
	for i := range inFlight {
		add, del := calls(i, newNamespace(b))
		adds, dels = append(adds, add), append(dels, del)
	}
	var adding, deleting time.Duration
	for b.Loop() {
		adding += together(b, adds)
		deleting += together(b, dels)
	}
	n := float64(b.N * inFlight)
	b.ReportMetric(float64(adding.Microseconds())/1000/n, "add-ms")
	b.ReportMetric(float64(deleting.Microseconds())/1000/n, "del-ms")
}

// together makes all calls at once and returns the sum of their durations.
func together(b *testing.B, calls []func() error) time.Duration {
	b.Helper()
	took := make([]time.Duration, len(calls))
	var wg sync.WaitGroup
	for i, call := range calls {
		wg.Go(func() {
			start := time.Now()
			if err := call(); err != nil {
				b.Error(err)
			}
			took[i] = time.Since(start)
		})
	}
	wg.Wait()
	var sum time.Duration
	for _, d := range took {
		sum += d
	}
	return sum
}
