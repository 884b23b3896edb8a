// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/pods"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
)

// Pod implements attach.KubeClient.
func (d *testDaemon) Pod(ctx context.Context, namespace, name, uid string) (pod *corev1.Pod, err error) {
	err = d.call(ctx, "Pod", func() error {
		pod = d.env.pods[namespace+"/"+name]
		if pod == nil || string(pod.UID) != uid {
			return fmt.Errorf("get Pod %s/%s: %w", namespace, name, attach.ErrNotFound)
		}
		return nil
	})
	return pod, err
}

// PodWithSpec implements attach.KubeClient.
func (d *testDaemon) PodWithSpec(ctx context.Context, pod *corev1.Pod) (whole *corev1.Pod, err error) {
	err = d.call(ctx, "PodWithSpec", func() error {
		whole = d.env.pods[pod.Namespace+"/"+pod.Name]
		return nil
	})
	return whole, err
}

// Network implements attach.KubeClient.
func (d *testDaemon) Network(ctx context.Context, ref network.Ref) (n *network.Network, err error) {
	err = d.call(ctx, "Network "+ref.String(), func() error {
		if d.env.invalid[ref] {
			return fmt.Errorf("get network %s: %w", ref, network.ErrInvalid)
		}
		if d.env.unknown[ref] {
			return fmt.Errorf("get network %s: %w", ref, attach.ErrTryAgain)
		}
		if n = d.env.networks[ref]; n == nil {
			return fmt.Errorf("get network %s: %w", ref, attach.ErrNotFound)
		}
		return nil
	})
	return n, err
}

// knownNetwork is the KnownNetwork of attach.Config.
func (d *testDaemon) knownNetwork(ref network.Ref) *network.Network { return d.env.networks[ref] }

// ReportFailure implements attach.KubeClient.
func (d *testDaemon) ReportFailure(pod *corev1.Pod, err error) string {
	d.env.mu.Lock()
	defer d.env.mu.Unlock()
	reason := pods.EventReason(err)
	d.env.events = append(d.env.events, fmt.Sprintf("%s/%s %s: %v", pod.Namespace, pod.Name, reason, err))
	return reason
}

// Claim implements attach.Addresses.
func (d *testDaemon) Claim(ctx context.Context, n *network.Network, v4, v6 attach.AddressRequest) (a4, a6 netip.Addr, err error) {
	err = d.call(ctx, "Claim", func() error {
		if a4, err = d.allocate(n.V4, v4); err != nil {
			return err
		}
		if a6, err = d.allocate(n.V6, v6); err != nil {
			return err
		}
		d.env.markClaimed(a4, a6)
		return nil
	})
	if err != nil && !d.killed {
		// The allocator gives back a claim whose answer was lost.
		d.free(a4, a6)
	}
	return a4, a6, err
}

// allocate returns the lowest free address, so that a wrong release causes a conflict at once.
func (d *testDaemon) allocate(s *network.Subnet, want attach.AddressRequest) (netip.Addr, error) {
	switch {
	case want.Static.IsValid() && d.env.claimed[want.Static]:
		return netip.Addr{}, &attach.AddressTakenError{Addr: want.Static, Err: &allocator.TakenError{Addr: want.Static}}
	case want.Static.IsValid():
		return want.Static, nil
	case !want.Dynamic:
		return netip.Addr{}, nil
	}
	for a := s.Start; a.Compare(s.End) <= 0; a = a.Next() {
		if !d.env.claimed[a] {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%w in %s", allocator.ErrExhausted, s.CIDR)
}

// PodWithAddress implements attach.AddressOwners.
func (d *testDaemon) PodWithAddress(_ context.Context, namespace string, _ network.Ref, a netip.Addr) (string, error) {
	d.env.mu.Lock()
	defer d.env.mu.Unlock()
	pod, ok := strings.CutPrefix(d.env.owners[a], namespace+"/")
	if !ok {
		return "", d.env.ownersErr
	}
	return pod, d.env.ownersErr
}

// free frees addresses.
func (d *testDaemon) free(addresses ...netip.Addr) {
	d.env.mu.Lock()
	defer d.env.mu.Unlock()
	for _, a := range addresses {
		delete(d.env.claimed, a)
	}
}

// Discard implements attach.Addresses.
func (d *testDaemon) Discard(_ *network.Network, a4, a6 netip.Addr) {
	_ = d.call(context.Background(), "Discard", func() error {
		delete(d.env.claimed, a4)
		delete(d.env.claimed, a6)
		return nil
	})
}

// Parent implements attach.HostLinks.
func (d *testDaemon) Parent(ctx context.Context, n *network.Network) (string, error) {
	return n.Device, d.call(ctx, "Parent", func() error { return nil })
}

// Check implements attach.HostLinks.
func (d *testDaemon) Check(ctx context.Context, n *network.Network) error {
	return d.call(ctx, "Check", func() error {
		if n.Device == missingNIC {
			return fmt.Errorf("%s: %w", n.Device, errMissing)
		}
		return nil
	})
}

// missingNIC is a NIC that no node has.
const missingNIC = "missing"

var errMissing = errors.New("NIC not found on this node")

// Exists implements attach.NetworkNamespaces.
func (d *testDaemon) Exists(path string) (exists bool, err error) {
	err = d.call(context.Background(), "Exists", func() error {
		_, exists = d.env.namespaces[path]
		return nil
	})
	return exists, err
}

// journal implements attach.Journal with the records of the environment.
type journal struct{ *testDaemon }

func key(containerID, ifName string) string { return containerID + "/" + ifName }

func decode(data []byte) *attach.Record {
	rec := &attach.Record{}
	if err := json.Unmarshal(data, rec); err != nil {
		panic(err)
	}
	return rec
}

func (j journal) Get(containerID, ifName string) (rec *attach.Record, err error) {
	err = j.call(context.Background(), "Journal.Get", func() error {
		data := j.env.records[key(containerID, ifName)]
		if data == nil {
			return attach.ErrNotFound
		}
		rec = decode(data)
		return nil
	})
	return rec, err
}

func (j journal) Put(rec *attach.Record) error {
	return j.call(context.Background(), "Journal.Put "+string(rec.State), func() error {
		data, err := json.Marshal(rec)
		j.env.records[key(rec.ContainerID, rec.IfName)] = data
		return err
	})
}

func (j journal) Delete(containerID, ifName string) error {
	return j.call(context.Background(), "Journal.Delete", func() error {
		delete(j.env.records, key(containerID, ifName))
		return nil
	})
}

func (j journal) List() (recs []*attach.Record, err error) {
	err = j.call(context.Background(), "Journal.List", func() error {
		for _, data := range j.env.records {
			recs = append(recs, decode(data))
		}
		return nil
	})
	return recs, err
}

// backend implements attach.Backend with the network namespaces of the environment.
type backend struct{ *testDaemon }

func (b backend) Attach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	err := b.call(ctx, "Attach "+ifc.Name, func() error { return b.make(rec, ifc) })
	if err != nil && !b.killed {
		_ = b.remove(rec, ifc) // on error, Attach must leave nothing behind
	}
	return err
}

func (b backend) make(rec *attach.Record, ifc *attach.Interface) error {
	links, exists := b.env.namespaces[rec.Netns]
	if !exists {
		return fmt.Errorf("open %s: %w", rec.Netns, fs.ErrNotExist)
	}
	if _, taken := links[ifc.Name]; taken {
		return fmt.Errorf("link %s exists", ifc.Name)
	}
	links[ifc.Name] = slices.DeleteFunc([]netip.Addr{ifc.V4.Addr(), ifc.V6.Addr()},
		func(a netip.Addr) bool { return !a.IsValid() })
	ifc.MAC, ifc.MTU = "02:00:00:00:00:01", 1500
	return nil
}

func (b backend) remove(rec *attach.Record, ifc *attach.Interface) error {
	b.env.mu.Lock()
	defer b.env.mu.Unlock()
	delete(b.env.namespaces[rec.Netns], ifc.Name)
	return nil
}

func (b backend) Detach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	return b.call(ctx, "Detach "+ifc.Name, func() error {
		delete(b.env.namespaces[rec.Netns], ifc.Name)
		return nil
	})
}

// delegate is a backend with state on the host, which a DEL only removes with the configuration of the
// ADD.
type delegate struct{ backend }

func (d delegate) Prepare(ctx context.Context, _ *attach.Request, ifc *attach.Interface) error {
	return d.call(ctx, "Prepare", func() error {
		if ifc.Network.IsNodeConfiguration() {
			if d.env.nodeConfiguration == "" {
				return fmt.Errorf("%w: folder is empty", attach.ErrNoDefaultNetwork)
			}
			ifc.Network.Ref.Name = d.env.nodeConfiguration
			ifc.DelegateConfig = json.RawMessage(`{"name":"` + d.env.nodeConfiguration + `"}`)
			return nil
		}
		ifc.DelegateConfig = json.RawMessage(`{"name":"` + ifc.Network.ID + `"}`)
		return nil
	})
}

func (d delegate) Attach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	err := d.call(ctx, "Attach "+ifc.Name, func() error {
		if err := d.make(rec, ifc); err != nil {
			return err
		}
		d.env.delegated[key(rec.ContainerID, ifc.Name)] = string(ifc.DelegateConfig)
		return nil
	})
	if err != nil && !d.killed {
		_ = d.remove(rec, ifc)
		d.env.mu.Lock()
		defer d.env.mu.Unlock()
		delete(d.env.delegated, key(rec.ContainerID, ifc.Name))
		return err
	}
	ifc.Result = fmt.Appendf(nil, `{"cniVersion":"1.0.0","interfaces":[{"name":"veth0"},{"name":%q,"sandbox":%q}]}`, ifc.Name, rec.Netns)
	if d.invalidResult {
		ifc.Result = json.RawMessage(`{"ips":[{"address":"x"}]}`)
	}
	return err
}

func (d delegate) Detach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	return d.call(ctx, "Detach "+ifc.Name, func() error {
		if _, exists := d.env.namespaces[rec.Netns]; rec.Netns != "" && !exists {
			return fmt.Errorf("open %s: no such namespace", rec.Netns) // like many plugins
		}
		delete(d.env.namespaces[rec.Netns], ifc.Name)
		if k := key(rec.ContainerID, ifc.Name); d.env.delegated[k] == string(ifc.DelegateConfig) {
			delete(d.env.delegated, k)
		}
		return nil
	})
}
