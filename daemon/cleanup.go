// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/daemon/internal/install"
	"github.com/patchbay-cni/patchbay/internal/attachments"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/text"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

const (
	// cleanUpTimeout bounds the removal of links and filters, and reportTimeout the report.
	cleanUpTimeout = 8 * time.Second
	reportTimeout  = 5 * time.Second
	// reportInterval is the time between two attempts to report.
	reportInterval = 300 * time.Millisecond
	// maxCleanUpMessage bounds the report's message, which is that of a condition.
	maxCleanUpMessage = 2048
)

// cleanUp removes the rest of Patchbay from the node after the installation's files. Host links are removed only if
// the operator has requested it: it reports its outcome to the operator then. failed is why files stay.
func (i *installation) cleanUp(ctx context.Context, outcome install.Outcome, failed, released error) error {
	cleaning, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	request := i.removal.CleanUp
	var links []v1.HostLink
	if request != "" {
		var err error
		if links, err = removeLinks(cleaning, i.links); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	if failed == nil && outcome == install.Removed { // otherwise Pods may still need the filters
		failed = i.removePacketFilters(cleaning)
	}
	if request == "" {
		return failed
	}
	attached, err := i.attachedPods()
	failed = errors.Join(failed, err)
	c := cleanedUp(links, outcome, attached, failed, released)
	c.Message = text.Truncate(v1alpha1.CleanUpMessage(request, c.Message), maxCleanUpMessage)
	if err := i.reportCleanUp(ctx, links, c); err != nil {
		failed = errors.Join(failed, fmt.Errorf("report the clean-up: %w", err))
	}
	return failed
}

// reportCleanUp reports to the operator. It tries again after an error: without a report, an administrator has to look at the
// node.
func (i *installation) reportCleanUp(ctx context.Context, links []v1.HostLink, c metav1.Condition) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	for {
		err := i.report(ctx, links, c)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(reportInterval):
		}
	}
}

// cleanedUp returns the report about the node. attached are the Pods of sandboxes with networks, which keep their
// interfaces.
func cleanedUp(links []v1.HostLink, outcome install.Outcome, attached []string, failed, released error) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionCleanedUp, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCleanedUp, LastTransitionTime: metav1.Now()}
	if failed != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonCleanUpFailed, strings.ReplaceAll(failed.Error(), "\n", "; ")
		return c
	}
	notes := []string{v1alpha1.CleanUpComplete}
	switch outcome {
	case install.Removed:
	case install.Kept:
		notes[0] = "CNI configuration not removed, because the daemon has not installed it (--install=false)"
	case install.PluginKept:
		notes = append(notes, "plugin kept for the Pods that are attached")
	}
	if len(attached) > 0 {
		c.Reason = v1alpha1.ReasonCleanedUpUnderPods
		notes = append(notes, fmt.Sprintf("%d sandboxes keep their interfaces: %s", len(attached), attachments.Names(attached)))
	}
	for i := range links {
		if id := links[i].Identity; !strings.HasPrefix(id, "nic/") {
			notes = append(notes, fmt.Sprintf("link %s kept for the Pods on it", links[i].Name))
		}
	}
	if released != nil {
		notes = append(notes, "pre-allocated addresses not returned: "+released.Error())
	}
	c.Message = strings.Join(notes, "; ")
	return c
}

// removeLinks removes the host links as if there were no network, and returns those that are left: Pods use them. They
// are nil if they are unknown. c is the configuration of the reconciler.
func removeLinks(ctx context.Context, c netwatcher.Config) ([]v1.HostLink, error) {
	none, kernel := &noNetworks{}, &usageKernel{Kernel: c.Kernel}
	c.KubeClient, c.Kernel, c.Delegates, c.Observer = none, kernel, nil, nil
	// An error about a packet filter leaves no link behind, so what the status has of the links counts.
	err := netwatcher.New(c).Reconcile(ctx)
	if none.status == nil {
		return nil, fmt.Errorf("remove host links: %w", err)
	}
	var failed []error
	if kernel.err != nil {
		failed = append(failed, fmt.Errorf("read which host links are in use, so that none was removed: %w", kernel.err))
	}
	for i := range none.status.Links {
		if l := &none.status.Links[i]; l.State == v1.LinkError {
			failed = append(failed, fmt.Errorf("remove host link %s: %s", l.Name, l.Error))
		}
	}
	return append([]v1.HostLink{}, none.status.Links...), errors.Join(failed...)
}

// usageKernel is a Kernel that keeps the error about links in use. To the reconciler, all links are in use then.
type usageKernel struct {
	netwatcher.Kernel

	err error
}

// LinksInUse implements netwatcher.Kernel.
func (k *usageKernel) LinksInUse(ctx context.Context) (map[string]bool, error) {
	names, err := k.Kernel.LinksInUse(ctx)
	if err != nil {
		k.err = err
	}
	return names, err
}

// noNetworks is a cluster without networks and other nodes. It stores the status.
type noNetworks struct{ status *v1.NodeNetworkStatus }

var _ netwatcher.KubeClient = (*noNetworks)(nil)

// Networks implements netwatcher.KubeClient.
func (*noNetworks) Networks(context.Context) ([]*network.Network, error) { return nil, nil }

// NodeNetworks implements netwatcher.KubeClient.
func (*noNetworks) NodeNetworks(context.Context) ([]v1.NodeNetwork, error) { return nil, nil }

// WriteStatus implements netwatcher.KubeClient.
func (n *noNetworks) WriteStatus(_ context.Context, status v1.NodeNetworkStatus) error {
	n.status = &status
	return nil
}
