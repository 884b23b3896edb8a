// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Pod implements attach.Cluster.
func (l *life) Pod(ctx context.Context, namespace, name, uid string) (pod *corev1.Pod, err error) {
	err = l.call(ctx, "Pod", func() error {
		pod = l.w.pods[namespace+"/"+name]
		if pod == nil || string(pod.UID) != uid {
			return fmt.Errorf("get Pod %s/%s: %w", namespace, name, attach.ErrNotFound)
		}
		return nil
	})
	return pod, err
}

// Network implements attach.Cluster.
func (l *life) Network(ctx context.Context, ref network.Ref) (n *network.Network, err error) {
	err = l.call(ctx, "Network "+ref.String(), func() error {
		if l.w.invalid[ref] {
			return fmt.Errorf("get network %s: %w", ref, network.ErrInvalid)
		}
		if n = l.w.networks[ref]; n == nil {
			return fmt.Errorf("get network %s: %w", ref, attach.ErrNotFound)
		}
		return nil
	})
	return n, err
}

// ReportFailure implements attach.Cluster.
func (l *life) ReportFailure(pod *corev1.Pod, err error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	var why interface{ Reason() string }
	reason := ""
	if errors.As(err, &why) {
		reason = why.Reason()
	}
	l.w.events = append(l.w.events, fmt.Sprintf("%s/%s %s: %v", pod.Namespace, pod.Name, reason, err))
}

// Claim implements attach.Addresses.
func (l *life) Claim(ctx context.Context, n *network.Network, v4, v6 attach.AddressRequest) (a4, a6 netip.Addr, err error) {
	err = l.call(ctx, "Claim", func() error {
		if a4, err = l.pick(n.V4, v4); err != nil {
			return err
		}
		if a6, err = l.pick(n.V6, v6); err != nil {
			return err
		}
		l.w.hold(a4, a6)
		return nil
	})
	if err != nil && !l.dead {
		// A claim whose answer is lost is given back by claims itself.
		l.free(a4, a6)
	}
	return a4, a6, err
}

// pick takes the lowest free address, so that wrong releases show at once.
func (l *life) pick(s *network.Subnet, want attach.AddressRequest) (netip.Addr, error) {
	switch {
	case want.Static.IsValid() && l.w.held[want.Static]:
		return netip.Addr{}, fmt.Errorf("address %s is taken", want.Static)
	case want.Static.IsValid():
		return want.Static, nil
	case !want.Dynamic:
		return netip.Addr{}, nil
	}
	for a := s.Start; a.Compare(s.End) <= 0; a = a.Next() {
		if !l.w.held[a] {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no free address in %s", s.CIDR)
}

func (l *life) free(addresses ...netip.Addr) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for _, a := range addresses {
		delete(l.w.held, a)
	}
}

// Discard implements attach.Addresses.
func (l *life) Discard(_ *network.Network, a4, a6 netip.Addr) {
	_ = l.call(context.Background(), "Discard", func() error {
		delete(l.w.held, a4)
		delete(l.w.held, a6)
		return nil
	})
}

// Parent implements attach.HostLinks.
func (l *life) Parent(ctx context.Context, n *network.Network) (string, error) {
	return n.Device, l.call(ctx, "Parent", func() error { return nil })
}

// Check implements attach.HostLinks.
func (l *life) Check(ctx context.Context, n *network.Network) error {
	return l.call(ctx, "Check", func() error {
		if n.Device == missingNIC {
			return fmt.Errorf("%s: %w", n.Device, errMissing)
		}
		return nil
	})
}

// missingNIC is on no node.
const missingNIC = "missing"

var errMissing = errors.New("NIC not found on this node")

// Exists implements attach.Namespaces.
func (l *life) Exists(path string) (there bool, err error) {
	err = l.call(context.Background(), "Exists", func() error {
		_, there = l.w.namespaces[path]
		return nil
	})
	return there, err
}

// journal implements attach.Journal with the world's disk.
type journal struct{ *life }

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
		data := j.w.records[key(containerID, ifName)]
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
		j.w.records[key(rec.ContainerID, rec.IfName)] = data
		return err
	})
}

func (j journal) Delete(containerID, ifName string) error {
	return j.call(context.Background(), "Journal.Delete", func() error {
		delete(j.w.records, key(containerID, ifName))
		return nil
	})
}

func (j journal) List() (recs []*attach.Record, err error) {
	err = j.call(context.Background(), "Journal.List", func() error {
		for _, data := range j.w.records {
			recs = append(recs, decode(data))
		}
		return nil
	})
	return recs, err
}

// backend implements attach.Backend with the world's namespaces.
type backend struct{ *life }

func (b backend) Attach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	err := b.call(ctx, "Attach "+ifc.Name, func() error { return b.make(rec, ifc) })
	if err != nil && !b.dead {
		_ = b.remove(rec, ifc) // the contract: nothing is left on error
	}
	return err
}

func (b backend) make(rec *attach.Record, ifc *attach.Interface) error {
	links, there := b.w.namespaces[rec.Netns]
	if !there {
		return fmt.Errorf("open %s: %w", rec.Netns, attach.ErrNotFound)
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
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	delete(b.w.namespaces[rec.Netns], ifc.Name)
	return nil
}

func (b backend) Detach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	return b.call(ctx, "Detach "+ifc.Name, func() error {
		delete(b.w.namespaces[rec.Netns], ifc.Name)
		return nil
	})
}

// delegate is a backend that also keeps something on the host, which goes only
// when DEL has the configuration that ADD had.
type delegate struct{ backend }

func (d delegate) Prepare(ctx context.Context, _ *attach.Request, ifc *attach.Interface) error {
	return d.call(ctx, "Prepare", func() error {
		ifc.DelegateConfig = json.RawMessage(`{"name":"` + ifc.Network.ID + `"}`)
		return nil
	})
}

func (d delegate) Attach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	err := d.call(ctx, "Attach "+ifc.Name, func() error {
		if err := d.make(rec, ifc); err != nil {
			return err
		}
		d.w.delegated[key(rec.ContainerID, ifc.Name)] = string(ifc.DelegateConfig)
		return nil
	})
	if err != nil && !d.dead {
		_ = d.remove(rec, ifc)
		d.w.mu.Lock()
		defer d.w.mu.Unlock()
		delete(d.w.delegated, key(rec.ContainerID, ifc.Name))
		return err
	}
	ifc.Result = fmt.Appendf(nil, `{"cniVersion":"1.0.0","interfaces":[{"name":"veth0"},{"name":%q,"sandbox":%q}]}`, ifc.Name, rec.Netns)
	if d.broken {
		ifc.Result = json.RawMessage(`{"ips":[{"address":"x"}]}`)
	}
	return err
}

func (d delegate) Detach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	return d.call(ctx, "Detach "+ifc.Name, func() error {
		if _, there := d.w.namespaces[rec.Netns]; rec.Netns != "" && !there {
			return fmt.Errorf("open %s: no such namespace", rec.Netns) // as many plugins do
		}
		delete(d.w.namespaces[rec.Netns], ifc.Name)
		if k := key(rec.ContainerID, ifc.Name); d.w.delegated[k] == string(ifc.DelegateConfig) {
			delete(d.w.delegated, k)
		}
		return nil
	})
}
