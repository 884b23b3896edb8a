// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// BenchmarkMemory reports the resident memory of the daemon's process on a node with 250 Pods, in a
// cluster with 1,000 networks whose bitmaps have 11 KiB each: when idle, and after a write to each
// network. The target is 80 MiB.
func BenchmarkMemory(b *testing.B) {
	const networks, pods = 1000, 250
	env := apitest.Start(b)
	n := newNode(b, env)
	ns := env.Namespace(b)
	j, err := journal.Open(n.path("journal.db"), journal.Options{})
	if err != nil {
		b.Fatal(err)
	}
	nets := make([]*v1.ClusterNetwork, networks)
	for i := range nets {
		nets[i] = n.network("10.30.0.0/16")
		fill(b, n, nets[i])
	}
	for i := range pods {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("pod-", i), Annotations: map[string]string{
				v1.InterfacesAnnotation: requestInterface(nets[i], "dynamic"),
			}},
			Spec: corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		if err := env.Client.Create(b.Context(), pod); err != nil {
			b.Fatal(err)
		}
		rec := &attach.Record{ContainerID: pod.Name, IfName: "eth0", PodNamespace: ns, PodName: pod.Name, State: attach.Attached,
			Interfaces: []attach.Interface{{Name: "eth0", EndpointName: pod.Name, EndpointUID: "u",
				Network: network.Network{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: nets[i].Name}, UID: string(nets[i].UID)}}}}
		rec.BootID, err = journal.BootID()
		if err := errors.Join(err, j.Put(rec)); err != nil {
			b.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
	program := n.program()
	program.start()
	n.awaitReady()
	time.Sleep(5 * time.Second) // the daemon becomes idle
	b.ReportMetric(memory(b, program.pid(), "VmRSS"), "MiB-at-rest")
	for _, cn := range nets {
		fill(b, n, cn)
	}
	time.Sleep(5 * time.Second)
	b.ReportMetric(memory(b, program.pid(), "VmRSS"), "MiB-after-writes")
	b.ReportMetric(memory(b, program.pid(), "VmHWM"), "MiB-peak")
	b.ReportMetric(0, "ns/op")
}

// fill writes the full bitmap of a /16 into a network.
func fill(b *testing.B, n *node, cn *v1.ClusterNetwork) {
	b.Helper()
	pages := map[string]string{}
	for i := range 64 {
		pages[fmt.Sprint(i)] = strings.Repeat("/", 171) + "w=="
	}
	// The daemon also writes, because it settles the networks of its journal.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := n.env.Client.Get(b.Context(), client.ObjectKeyFromObject(cn), cn); err != nil {
			return err
		}
		ipam := cn.Status.IPAM
		if ipam == nil {
			ipam = &v1.IPAMStatus{}
		}
		ipam.V4 = &v1.AddressBitmap{CIDR: "10.30.0.0/16", Pages: pages}
		cn.Status.IPAM = ipam
		return n.env.Client.Status().Update(b.Context(), cn)
	})
	if err != nil {
		b.Fatal(err)
	}
}

// memory returns a field of /proc/<pid>/status in MiB.
func memory(b *testing.B, pid int, name string) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kib float64
		if _, err := fmt.Sscanf(line, name+": %f kB", &kib); err == nil {
			return kib / 1024
		}
	}
	b.Fatalf("no %s in the status of process %d", name, pid)
	return 0
}
