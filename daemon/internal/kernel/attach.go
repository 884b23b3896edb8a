// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Slaves creates and deletes the interfaces of Pods on links of the host.
type Slaves struct {
	conn  *conn
	locks *keyedMutex
}

// Attach creates the slave in the Pod's namespace and configures it. On error nothing is
// left behind. A link of the same name that Patchbay manages was left by an earlier
// attempt: it is replaced.
func (s *Slaves) Attach(ctx context.Context, slave *Slave) (AttachResult, error) {
	out, err := s.attach(ctx, slave)
	if err != nil {
		return AttachResult{}, fmt.Errorf("attach %s %s on %s: %w", slave.Kind, slave.Name, slave.Parent, err)
	}
	return out, nil
}

func (s *Slaves) attach(ctx context.Context, slave *Slave) (out AttachResult, err error) {
	if err := errors.Join(slave.validate(), ctx.Err()); err != nil {
		return AttachResult{}, err
	}
	err = inPodNamespace(slave.Netns, func(pod *podNamespace) error {
		name, created, err := s.create(pod, slave)
		if err != nil {
			return err
		}
		out = created
		err = pod.configure(ctx, &slave.PodInterface, name, out.Index)
		if err == nil {
			err = pod.waitForDAD(ctx, &slave.PodInterface, out.Index)
		}
		if err != nil {
			return errors.Join(err, pod.removeSlave(slave, out.Index))
		}
		return nil
	})
	return out, err
}

// create creates the link in the Pod's namespace and returns its present name there, which
// may be a temporary one.
func (s *Slaves) create(pod *podNamespace, slave *Slave) (name string, out AttachResult, err error) {
	unlock := s.locks.lock(slave.Parent)
	defer unlock()

	parent, err := s.parent(slave)
	if err != nil {
		return "", out, err
	}
	r := &createRequest{slave: slave, name: slave.Name, parent: parent.Index, mtu: slave.MTU}
	if r.mtu == 0 {
		r.mtu = parent.MTU
	}
	out.MTU, out.MAC = r.mtu, parent.HardwareAddr.String()
	if slave.Kind == MACVLAN {
		// A MAC that the kernel chose would take another request to read.
		if r.mac = slave.MAC; r.mac == nil {
			r.mac = RandomMAC()
		}
		out.MAC = r.mac.String()
	}
	if err := s.createOrReplace(pod, r); err != nil {
		return "", out, err
	}
	out.Index, err = pod.linkIndex(r.name)
	return r.name, out, err
}

// createRequest is the content of the message that creates a slave.
type createRequest struct {
	slave       *Slave
	name        string
	parent, mtu int
	mac         net.HardwareAddr
}

// parent returns the host link below the slave, after the checks that the kernel answers
// without an explanation.
func (s *Slaves) parent(slave *Slave) (*netlink.LinkAttrs, error) {
	link, err := s.conn.linkByName(slave.Parent)
	if errors.Is(err, errLinkNotFound) {
		return nil, fmt.Errorf("%s: %w", slave.Parent, ErrParentMissing)
	}
	if err != nil {
		return nil, err
	}
	parent := link.Attrs()
	if slave.MTU > parent.MTU {
		return nil, fmt.Errorf("%w: mtu %d must be at most the %d of %s", ErrInvalid, slave.MTU, parent.MTU, slave.Parent)
	}
	return parent, nil
}

// createOrReplace creates the link with its final name. EEXIST has two causes: an earlier
// attempt left a link in the Pod, or a kernel before 6.15 takes a host link of the same
// name for a conflict. In both cases it removes leftovers and uses a temporary name.
func (s *Slaves) createOrReplace(pod *podNamespace, r *createRequest) error {
	err := s.sendCreate(pod, r)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	r.name = temporaryName(r.slave.Name)
	for _, name := range []string{r.slave.Name, r.name} {
		if err := pod.removeLeftover(r.slave, name); err != nil {
			return err
		}
	}
	return s.sendCreate(pod, r)
}

// sendCreate is the one message that makes the link in the Pod's namespace.
func (s *Slaves) sendCreate(pod *podNamespace, r *createRequest) error {
	info, err := r.slave.linkInfo()
	if err != nil {
		return err
	}
	data := []nl.NetlinkRequestData{
		nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(r.name)),
		nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(r.parent))),
		nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(pod.ns.fd))),
		nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(r.mtu))),
		nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(unfinishedGroup)),
		info,
	}
	if r.mac != nil {
		data = append(data, nl.NewRtAttr(unix.IFLA_ADDRESS, r.mac))
	}
	err = s.conn.send(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, data...)
	switch {
	// The kernel answers EINVAL to passthru beside other slaves.
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EINVAL) && r.slave.Kind == MACVLAN:
		return fmt.Errorf("create the link: %w (it is a port of a bridge or bond, or has slaves of another kind): %w", ErrParentBusy, err)
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("create the link: %w: %w", ErrParentMissing, err)
	case err != nil:
		return fmt.Errorf("create the link: %w", err)
	}
	return nil
}

// temporaryName derives a name that no one else chooses. It is always the same for an
// interface name, so that a link that a crash left under it can be found.
func temporaryName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "pb" + hex.EncodeToString(sum[:6])
}

// RandomMAC returns a locally administered unicast address.
func RandomMAC() net.HardwareAddr {
	mac := make(net.HardwareAddr, 6)
	_, _ = rand.Read(mac) // never fails (Go 1.24)
	mac[0] = mac[0]&^1 | 2
	return mac
}

// Detach deletes the slave. A missing link or namespace is not an error. A link of that
// name stays if it is not of the slave's kind, or its parent is not in another namespace:
// Patchbay did not create it.
func (s *Slaves) Detach(_ context.Context, slave *Slave) error {
	if slave.Netns == "" {
		return nil // CNI: the runtime leaves it empty when the namespace is gone
	}
	err := inPodNamespace(slave.Netns, func(pod *podNamespace) error { return pod.detach(slave) })
	if err != nil && !errors.Is(err, ErrNamespaceGone) {
		return fmt.Errorf("detach %s %s: %w", slave.Kind, slave.Name, err)
	}
	return nil
}
