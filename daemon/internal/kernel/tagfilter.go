// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// Where the tag filter is among others of its link: first, since a filter that accepts a
// frame ends the look at it. Its handle tells it from another program's of that preference.
const (
	tagPreference = 1
	tagHandle     = unfinishedGroup
)

// A tag filter is two programs of classic BPF, which needs neither bpf(2) nor a process that
// keeps it. They run on the host's link, where a Pod reaches them neither with CAP_NET_ADMIN
// nor by sockets that leave out the filters of its own interface (AF_XDP,
// PACKET_QDISC_BYPASS).
//
// On the way out a frame of a VLAN link above, or of a bridge, has its tag beside the frame
// (skb->vlan_tci), and what a slave sends has it inside: slaves have no tag offload. On the
// way in the filter drops frames with a tag that name one MAC as their sender and receiver:
// so IPVLAN hands frames of its slaves back to its parent, which would pass them to its
// VLANs. No frame on a wire is so.
var (
	egressTagProgram = assemble(
		loadVLANTagPresent,
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1},
		loadEtherType,
		jumpIf(0x8100, 5), // 802.1Q
		jumpIf(0x88a8, 4), // 802.1ad
		jumpIf(0x9100, 3), // what switches took for 802.1ad before it was a standard
		jumpIf(0x9200, 2),
		jumpIf(0x9300, 1),
		verdictContinue,
		verdictDrop,
	)
	ingressTagProgram = assemble(
		loadVLANTagPresent,
		jumpIf(0, 8),
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		unix.SockFilter{Code: unix.BPF_MISC | unix.BPF_TAX},
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 6},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_X, Jf: 4},
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4},
		unix.SockFilter{Code: unix.BPF_MISC | unix.BPF_TAX},
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 10},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_X, Jt: 1},
		verdictContinue,
		verdictDrop,
	)

	loadVLANTagPresent = unix.SockFilter{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: skfAncillary + 48}
	loadEtherType      = unix.SockFilter{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 12}
	verdictContinue    = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxUint32} // TC_ACT_UNSPEC: other filters
	verdictDrop        = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 2}              // TC_ACT_SHOT
)

// skfAncillary is SKF_AD_OFF: loads from there on read what belongs to the frame.
const skfAncillary = 0xfffff000

func jumpIf(value uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: skip, K: value}
}

// assemble is what the kernel takes and gives as TCA_BPF_OPS.
func assemble(ops ...unix.SockFilter) []byte {
	var b []byte
	for _, op := range ops {
		b = binary.NativeEndian.AppendUint16(b, op.Code)
		b = append(b, op.Jt, op.Jf)
		b = binary.NativeEndian.AppendUint32(b, op.K)
	}
	return b
}

// sharedTagBlock is the tc block that the egress of all VLANs and VXLANs of ours is bound to. It
// has the filter once for all of them, and a list of qdiscs says which links are bound.
const sharedTagBlock = unfinishedGroup

// tagFilter is where a filter is, with its program: a direction of a link, or a block.
type tagFilter struct {
	parent  uint32
	program []byte
}

// nicTagFilters are those of a NIC. Nothing is above a VLAN or VXLAN of ours to which a frame that
// comes back could go: these need the first one only.
func nicTagFilters() []tagFilter {
	return []tagFilter{{netlink.HANDLE_MIN_EGRESS, egressTagProgram}, {netlink.HANDLE_MIN_INGRESS, ingressTagProgram}}
}

func blockTagFilter() tagFilter { return tagFilter{sharedTagBlock, egressTagProgram} }

const (
	// blockIfindex is TCM_IFINDEX_MAGIC_BLOCK: a message is about a block.
	blockIfindex = -1
	// attrEgressBlock is TCA_EGRESS_BLOCK.
	attrEgressBlock = 14
)

// installTagFilter sets the filter in front of the slaves of a link.
func (k *Kernel) installTagFilter(s *netwatcher.Spec) error {
	index, err := k.hostConn.linkIndex(s.Name)
	if err != nil {
		return err
	}
	qdisc := []nl.NetlinkRequestData{
		&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(index), Handle: netlink.HANDLE_CLSACT & 0xffff0000, Parent: netlink.HANDLE_CLSACT},
		nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("clsact")),
	}
	if !s.Identity.IsNIC() {
		qdisc = append(qdisc, nl.NewRtAttr(attrEgressBlock, nl.Uint32Attr(sharedTagBlock)))
	}
	err = k.hostConn.send(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, qdisc...)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add a clsact qdisc: %w", explainTagFilterError(err))
	}
	if s.Identity.IsNIC() {
		for _, h := range nicTagFilters() {
			if err := k.setTagFilter(index, h); err != nil {
				return err
			}
		}
		return nil
	}
	err = k.setTagFilter(blockIfindex, blockTagFilter())
	if err != nil {
		return err
	}
	return k.checkTagBlock(s.Name, index)
}

// checkTagBlock checks that the qdisc that was there is ours.
func (k *Kernel) checkTagBlock(name string, index int) error {
	msgs, err := k.hostConn.dump(unix.RTM_GETQDISC, &nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(index)})
	if err != nil {
		return fmt.Errorf("list qdiscs: %w", err)
	}
	for _, m := range msgs {
		if isClsact(m) && int(nl.DeserializeTcMsg(m).Ifindex) == index && bindsTagBlock(m) {
			return nil
		}
	}
	return fmt.Errorf("another program has a clsact qdisc on %s: remove it: %w", name, ErrNameTaken)
}

func isClsact(m []byte) bool {
	return len(m) >= nl.SizeofTcMsg && bytes.Equal(nestedAttribute(m[nl.SizeofTcMsg:], nl.TCA_KIND), nl.ZeroTerminated("clsact"))
}

func bindsTagBlock(m []byte) bool {
	return bytes.Equal(nestedAttribute(m[nl.SizeofTcMsg:], attrEgressBlock), nl.Uint32Attr(sharedTagBlock))
}

// setTagFilter adds the filter, or replaces its program.
func (k *Kernel) setTagFilter(index int, h tagFilter) error {
	if err := k.hostConn.send(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE, h.message(index), bpfKind(), h.options()); err != nil {
		return fmt.Errorf("add a filter of preference %d (is it another program's, or is the qdisc not clsact?): %w", tagPreference, explainTagFilterError(err))
	}
	return nil
}

// explainTagFilterError explains what a kernel answers that does not know the qdisc or the filter.
func explainTagFilterError(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w", netwatcher.ErrTagFilterUnsupported, err)
	}
	return err
}

// removeTagFilter takes the filter off a NIC. The qdisc stays: others may have come to use it.
func (k *Kernel) removeTagFilter(s *netwatcher.Spec) error {
	index, err := k.hostConn.linkIndex(s.Name)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, h := range nicTagFilters() {
		err := k.hostConn.send(unix.RTM_DELTFILTER, 0, h.message(index), bpfKind())
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) { // EINVAL: the qdisc is gone
			return fmt.Errorf("delete the filter of preference %d: %w", tagPreference, err)
		}
	}
	return nil
}

// RemoveTagFilters takes the filters off all NICs, for a node that Patchbay leaves.
func (k *Kernel) RemoveTagFilters(ctx context.Context) error {
	state, err := k.State(ctx)
	if err != nil {
		return err
	}
	for i := range state.NICs {
		nic := netwatcher.Spec{Identity: network.Link{Device: state.NICs[i].Name}, Name: state.NICs[i].Name}
		if err := k.removeTagFilter(&nic); err != nil {
			return fmt.Errorf("%s: %w", nic.Name, err)
		}
	}
	return nil
}

func bpfKind() *nl.RtAttr { return nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bpf")) }

// options are those of a filter that decides by what its program returns.
func (h tagFilter) options() *nl.RtAttr {
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(nl.TCA_BPF_OPS_LEN, nl.Uint16Attr(uint16(len(h.program)/unix.SizeofSockFilter)))
	options.AddRtAttr(nl.TCA_BPF_OPS, h.program)
	options.AddRtAttr(nl.TCA_BPF_FLAGS, nl.Uint32Attr(nl.TCA_BPF_FLAG_ACT_DIRECT))
	return options
}

// message names the filter of a link.
func (h tagFilter) message(index int) *nl.TcMsg {
	return &nl.TcMsg{
		Family: unix.AF_UNSPEC, Ifindex: int32(index), Parent: h.parent, Handle: tagHandle,
		Info: tagPreference<<16 | uint32(nl.Swap16(unix.ETH_P_ALL)), // in network byte order
	}
}

// installed reports whether the link, or the block, has the filter, with the program of this version.
func (h tagFilter) installed(c *conn, index int) (bool, error) {
	msgs, err := c.dump(unix.RTM_GETTFILTER, &nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(index), Parent: h.parent})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(msgs, func(m []byte) bool {
		if len(m) < nl.SizeofTcMsg {
			return false
		}
		head := nl.DeserializeTcMsg(m)
		return head.Handle == tagHandle && head.Info>>16 == tagPreference &&
			bytes.Equal(nestedAttribute(m[nl.SizeofTcMsg:], nl.TCA_OPTIONS, nl.TCA_BPF_OPS), h.program)
	}), nil
}
