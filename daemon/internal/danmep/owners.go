// SPDX-License-Identifier: Apache-2.0

package danmep

import (
	"context"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Owners implements attach.AddressOwners with the DanmEps of all nodes.
type Owners struct {
	reader client.Reader
}

var _ attach.AddressOwners = (*Owners)(nil)

// NewOwners returns Owners that reads from the API server.
func NewOwners(reader client.Reader) *Owners { return &Owners{reader: reader} }

// PodWithAddress implements attach.AddressOwners. It reads from the API server's cache, because kubelet
// retries the ADD that failed: the list must cost etcd nothing.
func (o *Owners) PodWithAddress(ctx context.Context, namespace string, ref network.Ref, a netip.Addr) (string, error) {
	list := &v1.DanmEpList{}
	err := o.reader.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{"spec.NetworkName": ref.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
	if err != nil {
		return "", fmt.Errorf("list DanmEps of %s in namespace %s: %w", ref, namespace, err)
	}
	for i := range list.Items {
		ep := &list.Items[i]
		if !kube.IsOnNetwork(ep, ref) {
			continue
		}
		if found, err := kube.EndpointOf(ep); err == nil && (found.V4 == a || found.V6 == a) {
			return found.Pod, nil
		}
	}
	return "", nil
}
