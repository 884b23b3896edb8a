// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
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

// The tag filter has the first preference of its link, since a filter that accepts a frame ends
// the processing. Its handle distinguishes it from another program's filter of that preference.
const (
	tagPreference = 1
	tagHandle     = unfinishedGroup
)

// The tag filter has two programs of classic BPF, which needs neither bpf(2) nor a running
// process. They run on the host's link, where a Pod can bypass them neither with CAP_NET_ADMIN
// nor with sockets that skip the filters of its own interface (AF_XDP, PACKET_QDISC_BYPASS).

// egressTagProgram drops frames whose tag is in the frame itself. A frame of a VLAN link above, or of
// a bridge, has its tag in the frame's metadata (skb->vlan_tci). A frame of a slave has it in the
// frame, since slaves have no tag offload.
func egressTagProgram() []byte {
	return assemble(
		loadVLANTagPresent(),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1},
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 12}, // EtherType
		jumpIf(0x8100, 5), // 802.1Q
		jumpIf(0x88a8, 4), // 802.1ad
		jumpIf(0x9100, 3), // used for 802.1ad before the standard
		jumpIf(0x9200, 2),
		jumpIf(0x9300, 1),
		verdictContinue(),
		verdictDrop(),
	)
}

// ingressTagProgram drops tagged frames whose source and destination MAC are equal: IPVLAN hands such
// frames of its slaves back to its parent, which would pass them to its VLANs. No frame from the
// wire has equal MACs.
func ingressTagProgram() []byte {
	return assemble(
		loadVLANTagPresent(),
		jumpIf(0, 8),
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		unix.SockFilter{Code: unix.BPF_MISC | unix.BPF_TAX},
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 6},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_X, Jf: 4},
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4},
		unix.SockFilter{Code: unix.BPF_MISC | unix.BPF_TAX},
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 10},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_X, Jt: 1},
		verdictContinue(),
		verdictDrop(),
	)
}

// skfAncillary is SKF_AD_OFF: loads from this offset on read the frame's metadata.
const skfAncillary = 0xfffff000

func loadVLANTagPresent() unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: skfAncillary + 48}
}

func jumpIf(value uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: skip, K: value}
}

// verdictContinue lets other filters decide (TC_ACT_UNSPEC).
func verdictContinue() unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxUint32}
}

// verdictDrop drops the frame (TC_ACT_SHOT).
func verdictDrop() unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 2}
}

// assemble encodes a program as TCA_BPF_OPS.
func assemble(ops ...unix.SockFilter) []byte {
	b := make([]byte, 0, len(ops)*unix.SizeofSockFilter)
	for _, op := range ops {
		b = binary.NativeEndian.AppendUint16(b, op.Code)
		b = append(b, op.Jt, op.Jf)
		b = binary.NativeEndian.AppendUint32(b, op.K)
	}
	return b
}

// sharedTagBlock is the tc block of the egress of all managed VLANs and VXLANs. It has one filter
// for all of them, and a list of qdiscs has the links that are bound to it.
const sharedTagBlock = unfinishedGroup

// tagFilter is a filter of one direction of a link, or of a block.
type tagFilter struct {
	parent  uint32
	program []byte
}

// nicTagFilters are the filters of a NIC. A VLAN or VXLAN needs the egress filter only: it has no
// VLANs on top that could receive a frame that IPVLAN hands back.
func nicTagFilters() []tagFilter {
	return []tagFilter{{netlink.HANDLE_MIN_EGRESS, egressTagProgram()}, {netlink.HANDLE_MIN_INGRESS, ingressTagProgram()}}
}

func blockTagFilter() tagFilter { return tagFilter{sharedTagBlock, egressTagProgram()} }

const (
	// blockIfindex is TCM_IFINDEX_MAGIC_BLOCK: the message is about a block.
	blockIfindex = -1
	// attrEgressBlock is TCA_EGRESS_BLOCK.
	attrEgressBlock = 14
)

// tagFilters installs and removes the tag filters of a host's links.
type tagFilters struct{ conn *conn }

// install adds the tag filter to a link, for frames of its slaves.
func (t tagFilters) install(s *netwatcher.Spec) error {
	index, err := t.conn.linkIndex(s.Name)
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
	err = t.conn.send(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, qdisc...)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add a clsact qdisc: %w", explainTagFilterError(err))
	}
	if s.Identity.IsNIC() {
		for _, f := range nicTagFilters() {
			if err := t.set(index, f); err != nil {
				return err
			}
		}
		return nil
	}
	err = t.set(blockIfindex, blockTagFilter())
	if err != nil {
		return err
	}
	return t.checkTagBlock(s.Name, index)
}

// checkTagBlock checks that the link's clsact qdisc, which may have existed, uses the shared block.
func (t tagFilters) checkTagBlock(name string, index int) error {
	msgs, err := t.conn.dump(unix.RTM_GETQDISC, &nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(index)})
	if err != nil {
		return fmt.Errorf("list qdiscs: %w", err)
	}
	for _, m := range msgs {
		if isClsact(m) && int(nl.DeserializeTcMsg(m).Ifindex) == index && bindsTagBlock(m) {
			return nil
		}
	}
	return fmt.Errorf("another program has added a clsact qdisc to %s: delete it: %w", name, ErrNameTaken)
}

func isClsact(m []byte) bool {
	return len(m) >= nl.SizeofTcMsg && bytes.Equal(nestedAttribute(m[nl.SizeofTcMsg:], nl.TCA_KIND), nl.ZeroTerminated("clsact"))
}

func bindsTagBlock(m []byte) bool {
	return bytes.Equal(nestedAttribute(m[nl.SizeofTcMsg:], attrEgressBlock), nl.Uint32Attr(sharedTagBlock))
}

// set adds a filter, or replaces its program.
func (t tagFilters) set(index int, f tagFilter) error {
	if err := t.conn.send(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE, f.message(index), bpfKind(), f.options()); err != nil {
		return fmt.Errorf("add a filter of preference %d (the preference must be unused and the qdisc must be clsact): %w", tagPreference, explainTagFilterError(err))
	}
	return nil
}

// explainTagFilterError explains the errors of a kernel without the qdisc or the filter type.
func explainTagFilterError(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w", netwatcher.ErrTagFilterUnsupported, err)
	}
	return err
}

// remove deletes the filters of a NIC. The qdisc stays, as other programs may use it.
func (t tagFilters) remove(s *netwatcher.Spec) error {
	index, err := t.conn.linkIndex(s.Name)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range nicTagFilters() {
		err := t.conn.send(unix.RTM_DELTFILTER, 0, f.message(index), bpfKind())
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) { // EINVAL: the qdisc is gone
			return fmt.Errorf("delete the filter of preference %d: %w", tagPreference, err)
		}
	}
	return nil
}

// removeAll removes the filters of the NICs.
func (t tagFilters) removeAll(nics []netwatcher.NIC) error {
	for i := range nics {
		nic := netwatcher.Spec{Identity: network.Link{Device: nics[i].Name}, Name: nics[i].Name}
		if err := t.remove(&nic); err != nil {
			return fmt.Errorf("%s: %w", nic.Name, err)
		}
	}
	return nil
}

// present reports whether the link, or the block, has all of the filters.
func (t tagFilters) present(index int, filters ...tagFilter) (bool, error) {
	for _, f := range filters {
		if ok, err := f.installed(t.conn, index); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func bpfKind() *nl.RtAttr { return nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bpf")) }

// options are the options of a filter that uses its program's return value as its verdict.
func (f tagFilter) options() *nl.RtAttr {
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(nl.TCA_BPF_OPS_LEN, nl.Uint16Attr(uint16(len(f.program)/unix.SizeofSockFilter)))
	options.AddRtAttr(nl.TCA_BPF_OPS, f.program)
	options.AddRtAttr(nl.TCA_BPF_FLAGS, nl.Uint32Attr(nl.TCA_BPF_FLAG_ACT_DIRECT))
	return options
}

// message identifies the filter of a link.
func (f tagFilter) message(index int) *nl.TcMsg {
	return &nl.TcMsg{
		Family: unix.AF_UNSPEC, Ifindex: int32(index), Parent: f.parent, Handle: tagHandle,
		Info: tagPreference<<16 | uint32(nl.Swap16(unix.ETH_P_ALL)), // in network byte order
	}
}

// installed reports whether the link, or the block, has the filter with this version's program.
func (f tagFilter) installed(c *conn, index int) (bool, error) {
	msgs, err := c.dump(unix.RTM_GETTFILTER, &nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(index), Parent: f.parent})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(msgs, func(m []byte) bool {
		if len(m) < nl.SizeofTcMsg {
			return false
		}
		head := nl.DeserializeTcMsg(m)
		return head.Handle == tagHandle && head.Info>>16 == tagPreference &&
			bytes.Equal(nestedAttribute(m[nl.SizeofTcMsg:], nl.TCA_OPTIONS, nl.TCA_BPF_OPS), f.program)
	}), nil
}
