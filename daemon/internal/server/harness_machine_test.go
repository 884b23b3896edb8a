// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/daemon/internal/server"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// machineVariable is the environment variable that makes the test binary a daemon. Its value is the
// folder of the machine.
const machineVariable = "PATCHBAY_TEST_MACHINE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(machineVariable); dir != "" {
		if err := daemonMain(machine(dir)); err != nil {
			fmt.Fprintln(os.Stderr, "daemon:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// machine is a folder in place of a node's kernel and the API server. Interfaces and addresses are
// files, which remain after the daemon's end.
type machine string

func (m machine) socket() string                { return filepath.Join(string(m), "run", "s") }
func (m machine) pending() string               { return filepath.Join(string(m), "pending") }
func (m machine) file(kind, name string) string { return filepath.Join(string(m), kind, name) }

// make creates the folders.
func (m machine) make() error {
	var err error
	for _, kind := range []string{"links", "addresses", "records"} {
		err = errors.Join(err, os.MkdirAll(m.file(kind, ""), 0o700))
	}
	return err
}

// daemonMain runs a daemon with the real server, attach.Service and journal.
func daemonMain(m machine) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	j, err := journal.Open(filepath.Join(string(m), "state", "journal.db"), journal.Options{Wait: time.Minute})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	ports := &ports{machine: m, journal: j}
	if err := ports.settle(); err != nil {
		return err
	}
	service := attach.New(attach.Config{
		BootID: "boot", Journal: ports, KubeClient: ports, Addresses: ports, HostLinks: ports, NetworkNamespaces: ports, Publisher: ports,
		Backends: map[string]attach.Backend{"macvlan": links{m}},
	})
	if err := service.Resume(ctx); err != nil {
		return err
	}
	limits := server.DefaultLimits()
	limits.ReplayInterval, limits.IOTimeout = 10*time.Millisecond, time.Minute
	return server.New(server.Config{
		Socket: m.socket(), PendingDir: m.pending(), Handler: service, Log: logr.Discard(), Limits: limits,
	}).Run(ctx)
}

// links is a backend whose interfaces are files.
type links struct{ machine }

func (l links) Attach(_ context.Context, rec *attach.Record, _ *attach.Interface) error {
	return create(l.file("links", rec.ContainerID))
}

func (l links) Detach(_ context.Context, rec *attach.Record, _ *attach.Interface) error {
	return remove(l.file("links", rec.ContainerID))
}

// ports implements the interfaces of package attach on this machine.
type ports struct {
	machine
	journal *journal.Journal
}

func (r *ports) Get(id, ifName string) (*attach.Record, error) { return r.journal.Get(id, ifName) }
func (r *ports) List() ([]*attach.Record, error)               { return r.journal.List() }

// Put writes the record, and a file that the test can see.
func (r *ports) Put(rec *attach.Record) error {
	if err := os.WriteFile(r.file("records", rec.ContainerID), nil, 0o600); err != nil {
		return err
	}
	return r.journal.Put(rec)
}

func (r *ports) Delete(id, ifName string) error {
	if err := r.journal.Delete(id, ifName); err != nil {
		return err
	}
	return remove(r.file("records", id))
}

// settle frees the addresses that a killed daemon has claimed and not journaled, as the allocator does
// with the node's entry.
func (r *ports) settle() error {
	recs, err := r.journal.List()
	if err != nil {
		return err
	}
	used, known := map[string]bool{}, map[string]bool{}
	for _, rec := range recs {
		known[rec.ContainerID] = true
		for _, ifc := range rec.Interfaces {
			used[ifc.V4.Addr().String()] = true
		}
	}
	return errors.Join(r.keep("addresses", used), r.keep("records", known))
}

// keep removes the files of a kind whose names are not in names.
func (r *ports) keep(kind string, names map[string]bool) error {
	entries, err := os.ReadDir(r.file(kind, ""))
	for _, e := range entries {
		if !names[e.Name()] {
			err = errors.Join(err, remove(r.file(kind, e.Name())))
		}
	}
	return err
}

func (r *ports) Pod(_ context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(uid),
		Annotations: map[string]string{v1.InterfacesAnnotation: `[{"clusterNetwork":"n","ip":"dynamic"}]`},
	}}, nil
}

func (r *ports) PodWithSpec(_ context.Context, pod *corev1.Pod) (*corev1.Pod, error) { return pod, nil }

func (r *ports) Network(_ context.Context, ref network.Ref) (*network.Network, error) {
	return &network.Network{
		Ref: ref, UID: "1", ID: "n", Type: "macvlan", Prefix: "eth",
		V4: &network.Subnet{CIDR: netip.MustParsePrefix("10.0.0.0/24")},
	}, nil
}

func (r *ports) ReportFailure(*corev1.Pod, error) string { return v1.ReasonNetworkAttachmentFailed }

func (r *ports) ReportConflict(*corev1.Pod, *network.Network, error) {}

func (r *ports) Quarantine(*network.Network, netip.Addr) bool { return false }

func (r *ports) Check(context.Context, *network.Network) error { return nil }

func (r *ports) Parent(context.Context, *network.Network) (string, error) { return "uplink", nil }

func (r *ports) Exists(string) (bool, error) { return true, nil }

// Claim claims the first address whose file does not exist.
func (r *ports) Claim(context.Context, *network.Network, attach.AddressRequest, attach.AddressRequest) (a4, a6 netip.Addr, err error) {
	for a := netip.MustParseAddr("10.0.0.1"); a.Less(netip.MustParseAddr("10.0.0.255")); a = a.Next() {
		err := create(r.file("addresses", a.String()))
		if err == nil || !errors.Is(err, fs.ErrExist) {
			return a, a6, err
		}
	}
	return a4, a6, errors.New("the pool is full")
}

// Discard frees an address. It ends the process if the address is free already, because a second free
// could free the address of another Pod.
func (r *ports) Discard(_ *network.Network, a4, _ netip.Addr) {
	if err := os.Remove(r.file("addresses", a4.String())); err != nil {
		fmt.Fprintln(os.Stderr, "freed an address twice:", err)
		os.Exit(2)
	}
}

func (r *ports) Publish(*attach.Record) {}

// Release deletes the record, and then frees the addresses. In the opposite order, the daemon after a
// killed one could free the address of another Pod.
func (r *ports) Release(rec *attach.Record) {
	if err := r.Delete(rec.ContainerID, rec.IfName); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		return
	}
	for _, ifc := range rec.Interfaces {
		r.Discard(&ifc.Network, ifc.V4.Addr(), ifc.V6.Addr())
	}
}

// create creates a file that must not exist.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// remove removes a file that may not exist.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
