// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// readyCondition sums the links up as a condition without times: true when each is up and
// no network is refused, else it names the first that is not, with what is wrong.
func readyCondition(links []v1.HostLink, refused []v1.RefusedNetwork) metav1.Condition {
	c := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "LinksUp"}
	c.Message = fmt.Sprintf("links up: %d", len(links))
	var bad []string
	for _, l := range links {
		switch {
		case l.State == v1.LinkUp:
		case l.Error != "":
			bad = append(bad, l.Name+": "+l.Error)
		default:
			bad = append(bad, l.Name+" is down")
		}
	}
	if len(bad) > 0 {
		c.Reason = "LinkNotUp"
	} else if len(refused) > 0 {
		c.Reason = "NetworkRefused"
	}
	for _, r := range refused {
		bad = append(bad, r.Network+": "+r.Error)
	}
	if len(bad) > 0 {
		c.Status, c.Message = metav1.ConditionFalse, firstAndCount(bad)
	}
	return c
}

// ConditionIsolated is the condition of a NodeNetwork that says whether strangers are kept
// out of its VXLANs, and Pods in their networks.
const ConditionIsolated = "Isolated"

// isolationErrors say where networks are open: what the Firewall answered, on which links tags of
// Pods pass, and what the SourceGuard answered.
type isolationErrors struct{ vxlanFilter, tagFilter, sourceGuard error }

// retryable joins those that trying again soon may help. The condition says the others.
func (o *isolationErrors) retryable() error {
	unless := func(err, hopeless error) error {
		if errors.Is(err, hopeless) {
			return nil
		}
		return err
	}
	return errors.Join(unless(o.vxlanFilter, ErrFilterUnsupported), unless(o.tagFilter, ErrTagFilterUnsupported), unless(o.sourceGuard, ErrSourceGuardUnsupported))
}

// isolatedCondition makes the condition, without times.
func (f *VXLANFilter) isolatedCondition(open *isolationErrors) metav1.Condition {
	c := metav1.Condition{Type: ConditionIsolated, Status: metav1.ConditionTrue}
	err := open.vxlanFilter
	switch {
	case err == nil && open.tagFilter != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "TagsPass", truncate(open.tagFilter.Error())
	case err == nil && open.sourceGuard != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "SourcesPass", truncate(open.sourceGuard.Error())
	case f.Empty():
		c.Reason, c.Message = "NoVXLAN", "no network has a VXLAN on this node"
	case err == nil:
		c.Reason, c.Message = "FilterInPlace", "VXLAN packets are received from the other nodes' VTEPs only"
	case errors.Is(err, ErrFilterUnsupported):
		c.Status, c.Reason = metav1.ConditionFalse, "FilterNotSupported"
		c.Message = truncate("any Pod and any host of the underlay can send into this node's VXLANs: " + err.Error())
	default:
		c.Status, c.Reason = metav1.ConditionFalse, "FilterFailed"
		c.Message = truncate("any Pod and any host of the underlay may be able to send into this node's VXLANs: " + err.Error())
	}
	return c
}

// ConditionVTEPsAccepted is the condition of a NodeNetwork that says whether all other
// nodes' VTEPs count on this node.
const ConditionVTEPsAccepted = "VTEPsAccepted"

// vtepsAcceptedCondition makes the condition, without times. It names NICs that have VXLANs and no
// address: all nodes would write what one of them says.
func (p *Plan) vtepsAcceptedCondition(refused VTEPs) metav1.Condition {
	c := metav1.Condition{
		Type: ConditionVTEPsAccepted, Status: metav1.ConditionTrue, Reason: "InRange",
		Message: "all VTEPs are where they are expected",
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
		c.Status, c.Reason = metav1.ConditionFalse, "OutOfRange"
		c.Message = truncate("VXLANs on " + strings.Join(nics, ", ") + " leave nodes out whose address there is not in a subnet of this node's NIC, or not in --vtep-ranges: " +
			"the log of patchbayd names them; set --vtep-ranges if they are right")
	}
	return c
}
