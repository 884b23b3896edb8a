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

// Attach makes the slave in the Pod's namespace and configures it. On error
// nothing is left. A link of that name that carries our mark is one that an
// earlier attempt left behind: it is replaced.
func (k *Kernel) Attach(ctx context.Context, s *Slave) (AttachResult, error) {
	out, err := k.attach(ctx, s)
	if err != nil {
		return AttachResult{}, fmt.Errorf("attach %s %s on %s: %w", s.Kind, s.Name, s.Parent, err)
	}
	return out, nil
}

func (k *Kernel) attach(ctx context.Context, s *Slave) (out AttachResult, err error) {
	if err := errors.Join(s.validate(), ctx.Err()); err != nil {
		return AttachResult{}, err
	}
	err = inPodNamespace(s.Netns, func(pod *podNamespace) error {
		name, err := k.createSlave(pod, s, &out)
		if err != nil {
			return err
		}
		if err := pod.configure(ctx, s, name, out.Index); err != nil {
			return errors.Join(err, pod.removeSlave(s, out.Index))
		}
		return nil
	})
	return out, err
}

// createSlave makes the link in the Pod's namespace and returns the name that it has
// there for now.
func (k *Kernel) createSlave(pod *podNamespace, s *Slave, out *AttachResult) (string, error) {
	unlock := k.linkLocks.lock(s.Parent)
	defer unlock()

	parent, err := k.lookUpParent(s)
	if err != nil {
		return "", err
	}
	b := &createRequest{slave: s, name: s.Name, parent: parent.Index, mtu: s.MTU}
	if b.mtu == 0 {
		b.mtu = parent.MTU
	}
	out.MTU, out.MAC = b.mtu, parent.HardwareAddr.String()
	if s.Kind == MACVLAN {
		// Ours rather than the kernel's choice, so that it need not be asked for.
		if b.mac = s.MAC; b.mac == nil {
			b.mac = RandomMAC()
		}
		out.MAC = b.mac.String()
	}
	if err := k.createOrReplace(pod, b); err != nil {
		return "", err
	}
	out.Index, err = pod.linkIndex(b.name)
	return b.name, err
}

// createRequest is what the message that makes a slave says.
type createRequest struct {
	slave       *Slave
	name        string
	parent, mtu int
	mac         net.HardwareAddr
}

// lookUpParent finds the host link and checks what the kernel would not explain.
func (k *Kernel) lookUpParent(s *Slave) (*netlink.LinkAttrs, error) {
	link, err := k.hostConn.linkByName(s.Parent)
	if errors.Is(err, errLinkNotFound) {
		return nil, fmt.Errorf("%s: %w", s.Parent, ErrParentMissing)
	}
	if err != nil {
		return nil, err
	}
	parent := link.Attrs()
	if s.MTU > parent.MTU {
		return nil, fmt.Errorf("%w: mtu %d is over the %d of %s", ErrInvalid, s.MTU, parent.MTU, s.Parent)
	}
	return parent, nil
}

// createOrReplace makes the link with its final name. Where a kernel before 6.15
// takes the host's link of the same name for a conflict, or an earlier attempt
// left a link in the Pod, it clears the way first.
func (k *Kernel) createOrReplace(pod *podNamespace, b *createRequest) error {
	err := k.sendCreateSlave(pod, b)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	b.name = temporaryName(b.slave.Name)
	for _, name := range []string{b.slave.Name, b.name} {
		if err := pod.removeLeftover(b.slave, name); err != nil {
			return err
		}
	}
	return k.sendCreateSlave(pod, b)
}

// sendCreateSlave is the one message that makes the link in the Pod's namespace.
func (k *Kernel) sendCreateSlave(pod *podNamespace, b *createRequest) error {
	info, err := b.slave.linkInfo()
	if err != nil {
		return err
	}
	data := []nl.NetlinkRequestData{
		nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(b.name)),
		nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(b.parent))),
		nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(pod.ns.fd))),
		nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(b.mtu))),
		nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(unfinishedGroup)),
		info,
	}
	if b.mac != nil {
		data = append(data, nl.NewRtAttr(unix.IFLA_ADDRESS, b.mac))
	}
	err = k.hostConn.send(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, data...)
	switch {
	// EINVAL is the kernel's answer to passthru beside other slaves.
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EINVAL) && b.slave.Kind == MACVLAN:
		return fmt.Errorf("create the link: %w (a bridge or bond has it, or slaves of another kind): %w", ErrParentBusy, err)
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("create the link: %w: %w", ErrParentMissing, err)
	case err != nil:
		return fmt.Errorf("create the link: %w", err)
	}
	return nil
}

// temporaryName is one that nobody else chooses, and always the same for an
// interface: what a crash leaves under it can be found.
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

// Detach removes the slave. A link or a namespace that is gone is no error. A
// link of that name which is not a slave of the right kind on a link of another
// namespace was not made here, and stays.
func (k *Kernel) Detach(_ context.Context, s *Slave) error {
	if s.Netns == "" {
		return nil // the runtime says so when the namespace is gone
	}
	err := inPodNamespace(s.Netns, func(pod *podNamespace) error { return pod.detach(s) })
	if err != nil && !errors.Is(err, ErrNamespaceGone) {
		return fmt.Errorf("detach %s %s: %w", s.Kind, s.Name, err)
	}
	return nil
}

// podNamespace is a Pod's namespace that the current thread is in, with a socket there.
type podNamespace struct {
	*conn
	ns *netNamespace
}

// inPodNamespace runs fn in the namespace at path.
func inPodNamespace(path string, fn func(*podNamespace) error) error {
	ns, err := openNamespace(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.do(func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		return fn(&podNamespace{conn: c, ns: ns})
	})
}

// removeLeftover removes what an earlier attempt left in the Pod under a name; somebody
// else's link there is ErrNameTaken.
func (p *podNamespace) removeLeftover(s *Slave, name string) error {
	link, err := p.linkByName(name)
	switch {
	case errors.Is(err, errLinkNotFound):
		return nil // it is the host that has a link of this name
	case err != nil:
		return err
	case link.Type() != s.Kind || !isManaged(link.Attrs()):
		return fmt.Errorf("%s is a %s link in the Pod: %w", name, link.Type(), ErrNameTaken)
	}
	return p.removeSlave(s, link.Attrs().Index)
}

func (p *podNamespace) detach(s *Slave) error {
	link, err := p.linkByName(s.Name)
	if errors.Is(err, errLinkNotFound) {
		link, err = p.linkByName(temporaryName(s.Name))
	}
	switch {
	case errors.Is(err, errLinkNotFound):
		return p.deleteRules(s)
	case err != nil:
		return err
	case link.Type() != s.Kind || link.Attrs().NetNsID < 0:
		return nil
	}
	return p.removeSlave(s, link.Attrs().Index)
}

// removeSlave takes away the link and what the kernel does not remove with it.
func (p *podNamespace) removeSlave(s *Slave, index int) error {
	if err := p.deleteLink(index); err != nil {
		return fmt.Errorf("delete link %s: %w", s.Name, err)
	}
	return p.deleteRules(s)
}
