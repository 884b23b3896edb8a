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

// machineVariable makes the test binary a daemon on that machine.
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

// machine is a folder that stands for a node's kernel and for the API server:
// interfaces and addresses are files, which outlive the daemon as these do.
type machine string

func (m machine) socket() string                { return filepath.Join(string(m), "run", "s") }
func (m machine) pending() string               { return filepath.Join(string(m), "pending") }
func (m machine) file(kind, name string) string { return filepath.Join(string(m), kind, name) }

// make makes the folders.
func (m machine) make() error {
	var err error
	for _, kind := range []string{"links", "addresses", "records"} {
		err = errors.Join(err, os.MkdirAll(m.file(kind, ""), 0o700))
	}
	return err
}

// daemonMain is a daemon with the real server, use cases and journal.
func daemonMain(m machine) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	j, err := journal.Open(filepath.Join(string(m), "state", "journal.db"), journal.Options{Wait: time.Minute})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	rim := &rim{machine: m, journal: j}
	if err := rim.settle(); err != nil {
		return err
	}
	service := attach.New(attach.Config{
		BootID: "boot", Journal: rim, KubeClient: rim, Addresses: rim, HostLinks: rim, NetworkNamespaces: rim, Publisher: rim,
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

// rim is what surrounds the use cases on this machine.
type rim struct {
	machine
	journal *journal.Journal
}

func (r *rim) Get(id, ifName string) (*attach.Record, error) { return r.journal.Get(id, ifName) }
func (r *rim) List() ([]*attach.Record, error)               { return r.journal.List() }

// Put keeps a file beside each record, for the test to see.
func (r *rim) Put(rec *attach.Record) error {
	if err := os.WriteFile(r.file("records", rec.ContainerID), nil, 0o600); err != nil {
		return err
	}
	return r.journal.Put(rec)
}

func (r *rim) Delete(id, ifName string) error {
	if err := r.journal.Delete(id, ifName); err != nil {
		return err
	}
	return remove(r.file("records", id))
}

// settle frees what a killed daemon claimed and never journalled, as claims do
// from the node's own entry.
func (r *rim) settle() error {
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

// keep removes the files of a kind that are not in names.
func (r *rim) keep(kind string, names map[string]bool) error {
	entries, err := os.ReadDir(r.file(kind, ""))
	for _, e := range entries {
		if !names[e.Name()] {
			err = errors.Join(err, remove(r.file(kind, e.Name())))
		}
	}
	return err
}

func (r *rim) Pod(_ context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(uid),
		Annotations: map[string]string{v1.InterfacesAnnotation: `[{"clusterNetwork":"n","ip":"dynamic"}]`},
	}}, nil
}

func (r *rim) Network(_ context.Context, ref network.Ref) (*network.Network, error) {
	return &network.Network{
		Ref: ref, UID: "1", ID: "n", Type: "macvlan", Prefix: "eth",
		V4: &network.Subnet{CIDR: netip.MustParsePrefix("10.0.0.0/24")},
	}, nil
}

func (r *rim) ReportFailure(*corev1.Pod, error) {}

func (r *rim) ReportConflict(*corev1.Pod, *network.Network, error) {}

func (r *rim) Quarantine(*network.Network, netip.Addr) bool { return false }

func (r *rim) Check(context.Context, *network.Network) error { return nil }

func (r *rim) Parent(context.Context, *network.Network) (string, error) { return "uplink", nil }

func (r *rim) Exists(string) (bool, error) { return true, nil }

// Claim takes the first address whose file it can make: nobody gets it twice.
func (r *rim) Claim(context.Context, *network.Network, attach.AddressRequest, attach.AddressRequest) (a4, a6 netip.Addr, err error) {
	for a := netip.MustParseAddr("10.0.0.1"); a.Less(netip.MustParseAddr("10.0.0.255")); a = a.Next() {
		err := create(r.file("addresses", a.String()))
		if err == nil || !errors.Is(err, fs.ErrExist) {
			return a, a6, err
		}
	}
	return a4, a6, errors.New("the pool is full")
}

// Discard wants the address to be in use: who gives back twice gives back what
// is somebody else's.
func (r *rim) Discard(_ *network.Network, a4, _ netip.Addr) {
	if err := os.Remove(r.file("addresses", a4.String())); err != nil {
		fmt.Fprintln(os.Stderr, "an address was given back twice:", err)
		os.Exit(2)
	}
}

func (r *rim) Publish(*attach.Record) {}

// Release ends the record, then frees the addresses. The other way round a
// killed daemon's next life would free what is another Pod's by then.
func (r *rim) Release(rec *attach.Record) {
	if err := r.Delete(rec.ContainerID, rec.IfName); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		return
	}
	for _, ifc := range rec.Interfaces {
		r.Discard(&ifc.Network, ifc.V4.Addr(), ifc.V6.Addr())
	}
}

// create makes a file that must not be there.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// remove takes a file away that may be gone.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
