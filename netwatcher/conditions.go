// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// readyCondition returns the condition Ready, without times: true if the runtime calls Patchbay, each link is
// up, no network is refused and all delegates are installed, else with the first problem and the number of others.
// notCalled is why the runtime does not call Patchbay.
func readyCondition(s *v1.NodeNetworkStatus, notCalled error) metav1.Condition {
	c := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: v1.ReasonLinksUp}
	c.Message = fmt.Sprintf("links up: %d", len(s.Links))
	var bad []string
	if notCalled != nil {
		bad = append(bad, notCalled.Error())
	}
	for _, l := range s.Links {
		switch {
		case l.State == v1.LinkUp:
		case l.Error != "":
			bad = append(bad, l.Name+": "+l.Error)
		default:
			bad = append(bad, l.Name+" is down")
		}
	}
	switch {
	case notCalled != nil:
		c.Reason = v1.ReasonPluginNotCalled
	case len(bad) > 0:
		c.Reason = v1.ReasonLinksNotUp
	case len(s.Refused) > 0:
		c.Reason = v1.ReasonNetworkRefused
	default:
		c.Reason = v1.ReasonDelegateNotInstalled
	}
	for _, r := range s.Refused {
		bad = append(bad, r.Network+": "+r.Error)
	}
	for _, d := range s.Delegates {
		if d.Error != "" {
			bad = append(bad, d.NetworkType+" "+d.NetworkID+": "+d.Error)
		}
	}
	if len(bad) == 0 {
		c.Reason = v1.ReasonLinksUp
		return c
	}
	c.Status, c.Message = metav1.ConditionFalse, firstAndCount(bad)
	return c
}

// ConditionIsolated is the condition of a NodeNetwork that is true if only other nodes can send into
// its VXLANs, and Pods can send into their own networks only.
const ConditionIsolated = "Isolated"

// isolationErrors are the errors of the packet filters; nil for a filter that is in place.
type isolationErrors struct{ vxlanFilter, tagFilter, sourceGuard error }

// retryable joins the errors that a retry can resolve; a kernel without support is not among them.
func (o *isolationErrors) retryable() error {
	unless := func(err, unsupported error) error {
		if errors.Is(err, unsupported) {
			return nil
		}
		return err
	}
	return errors.Join(unless(o.vxlanFilter, ErrFilterUnsupported), unless(o.tagFilter, ErrTagFilterUnsupported), unless(o.sourceGuard, ErrSourceGuardUnsupported))
}

// isolatedCondition returns the condition, without times.
func isolatedCondition(f *VXLANFilter, open *isolationErrors) metav1.Condition {
	c := metav1.Condition{Type: ConditionIsolated, Status: metav1.ConditionTrue}
	err := open.vxlanFilter
	switch {
	case err == nil && open.tagFilter != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1.ReasonTagsNotFiltered, truncate(open.tagFilter.Error())
	case err == nil && open.sourceGuard != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1.ReasonSourcesNotGuarded, truncate(open.sourceGuard.Error())
	case f.Empty():
		c.Reason, c.Message = v1.ReasonNoVXLAN, "no network has a VXLAN on this node"
	case err == nil:
		c.Reason, c.Message = v1.ReasonFilterInPlace, "VXLAN packets are received from the other nodes' VTEPs only"
	case errors.Is(err, ErrFilterUnsupported):
		c.Status, c.Reason = metav1.ConditionFalse, v1.ReasonFilterNotSupported
		c.Message = truncate("any Pod and any host of the underlay can send into this node's VXLANs: " + err.Error())
	default:
		c.Status, c.Reason = metav1.ConditionFalse, v1.ReasonFilterFailed
		c.Message = truncate("any Pod and any host of the underlay may be able to send into this node's VXLANs: " + err.Error())
	}
	return c
}

// conditionVTEPsAccepted is the condition of a NodeNetwork that is true if the node uses all other
// nodes' VTEPs.
const conditionVTEPsAccepted = "VTEPsAccepted"

// vtepsAcceptedCondition returns the condition, without times. It names the NICs with VXLANs and
// not the ignored addresses: otherwise all nodes would write an address that one of them claims.
func vtepsAcceptedCondition(p *Plan, refused VTEPs) metav1.Condition {
	c := metav1.Condition{
		Type: conditionVTEPsAccepted, Status: metav1.ConditionTrue, Reason: v1.ReasonVTEPsInRange,
		Message: "all VTEPs are in this node's subnets or in --vtep-ranges",
	}
	var nics []string
	for i := range p.Links {
		w := &p.Links[i]
		if w.Identity.VXLAN != 0 && len(refused[w.Device]) > 0 && !slices.Contains(nics, w.Device) {
			nics = append(nics, w.Device)
		}
	}
	if len(nics) > 0 {
		slices.Sort(nics)
		c.Status, c.Reason = metav1.ConditionFalse, v1.ReasonVTEPsOutOfRange
		c.Message = truncate("VXLANs on " + strings.Join(nics, ", ") + " ignore nodes whose address there is not in --vtep-ranges or, without ranges, not in a subnet of this node's NIC: " +
			"if the addresses in the log of patchbayd are correct, add them to --vtep-ranges")
	}
	return c
}

// conditionDefaultNetwork is the condition of a NodeNetwork that is true if Pods without an annotation get a
// network on the node.
const conditionDefaultNetwork = "DefaultNetwork"

// defaultNetworkCondition returns the condition, without times, for a Pod whose namespace has no default
// network of its own. byDefault is the ClusterNetwork default, and invalid the error of an invalid one.
func defaultNetworkCondition(byDefault *network.Network, invalid error, node *v1.NodeConfiguration) metav1.Condition {
	c := metav1.Condition{Type: conditionDefaultNetwork, Status: metav1.ConditionTrue}
	ref := network.Ref{Kind: v1.KindClusterNetwork, Name: v1.DefaultNetworkName}
	switch {
	case invalid != nil:
		c.Status, c.Reason = metav1.ConditionFalse, v1.ReasonNetworkInvalid
		c.Message = truncate("Pods without annotation " + v1.InterfacesAnnotation + " do not start: " + invalid.Error())
	case byDefault != nil && !byDefault.Deleting:
		c.Reason, c.Message = v1.ReasonDefaultNetworkExists, "Pods without annotation "+v1.InterfacesAnnotation+" get "+ref.String()
		if len(byDefault.AllowedTenants) > 0 {
			c.Message = truncate(c.Message + ", which is for these namespaces only: " + strings.Join(byDefault.AllowedTenants, ", "))
		}
	case node.Error != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1.ReasonNoDefaultNetwork, node.Error
	default:
		c.Reason = v1.ReasonNodeConfigurationUsed
		c.Message = truncate("there is no " + ref.String() + ": Pods without annotation " + v1.InterfacesAnnotation + " get the node's CNI configuration " + node.File)
	}
	return c
}
