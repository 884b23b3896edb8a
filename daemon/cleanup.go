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
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/text"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

const (
	// cleanUpTimeout bounds cleanUp. With what comes before it, it must stay below the Pod's termination grace
	// period of 30 s.
	cleanUpTimeout = 8 * time.Second
	// maxCleanUpMessage bounds the report's message, which is that of a condition.
	maxCleanUpMessage = 2048
)

// cleanUp removes the rest of Patchbay from the node after the installation's files. Host links are removed only if
// the operator has requested it: it reports its outcome to the operator then. failed is why files stay.
func (i *installation) cleanUp(ctx context.Context, outcome install.Outcome, failed, released error) error {
	ctx, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	request, err := i.conn.CleanUpRequest(ctx, i.options.namespace, i.options.daemonSet)
	if err != nil { // the operator gets no report, and names this node
		i.log.Info("Failed to read whether to clean up the node", "error", err.Error())
	}
	status := &v1.NodeNetworkStatus{}
	if request != "" {
		if status, err = removeLinks(ctx, i.links); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	if failed == nil && outcome == install.Removed { // otherwise Pods may still need the filters
		failed = i.removePacketFilters(ctx)
	}
	if request == "" {
		return failed
	}
	status.Conditions = append(status.Conditions, cleanedUp(status, outcome, failed, released))
	last := &status.Conditions[len(status.Conditions)-1]
	last.Message = text.Truncate(v1alpha1.CleanUpMessage(request, last.Message), maxCleanUpMessage)
	if err := i.writeStatus(ctx, *status); err != nil {
		failed = errors.Join(failed, fmt.Errorf("report the clean-up: %w", err))
	}
	return failed
}

// cleanedUp returns the report about the node.
func cleanedUp(status *v1.NodeNetworkStatus, outcome install.Outcome, failed, released error) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionCleanedUp, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCleanedUp, LastTransitionTime: metav1.Now()}
	if failed != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonCleanUpFailed, strings.ReplaceAll(failed.Error(), "\n", "; ")
		return c
	}
	notes := []string{"CNI configuration removed"}
	switch outcome {
	case install.Removed:
	case install.Kept:
		notes[0] = "CNI configuration not removed, because the daemon has not installed it (--install=false)"
	case install.PluginKept:
		notes = append(notes, "plugin kept for the Pods that are attached")
	}
	for i := range status.Links {
		if id := status.Links[i].Identity; !strings.HasPrefix(id, "nic/") {
			notes = append(notes, fmt.Sprintf("link %s kept for the Pods on it", status.Links[i].Name))
		}
	}
	if released != nil {
		notes = append(notes, "pre-allocated addresses not returned: "+released.Error())
	}
	c.Message = strings.Join(notes, "; ")
	return c
}

// removeLinks removes the host links as if there were no network: those that Pods use stay. c is the configuration of
// the reconciler.
func removeLinks(ctx context.Context, c netwatcher.Config) (*v1.NodeNetworkStatus, error) {
	none := &noNetworks{}
	c.KubeClient, c.Delegates, c.Observer = none, nil, nil
	// An error about a packet filter leaves no link behind, so what the status has of the links counts.
	err := netwatcher.New(c).Reconcile(ctx)
	if none.status == nil {
		return &v1.NodeNetworkStatus{}, fmt.Errorf("remove host links: %w", err)
	}
	var failed []error
	for i := range none.status.Links {
		if l := &none.status.Links[i]; l.State == v1.LinkError {
			failed = append(failed, fmt.Errorf("remove host link %s: %s", l.Name, l.Error))
		}
	}
	return none.status, errors.Join(failed...)
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
