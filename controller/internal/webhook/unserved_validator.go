// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// unservedValidator warns about new objects that look like Patchbay's and that Patchbay does not
// read. Their kinds exist only where another program has installed them.
type unservedValidator struct{}

// Handle implements admission.Handler.
func (unservedValidator) Handle(_ context.Context, r admission.Request) admission.Response {
	if r.Kind.Kind == network.KindNetworkAttachmentDefinition {
		return admission.Allowed("").WithWarnings(fmt.Sprintf("%s/%s: Patchbay does not serve NetworkAttachmentDefinitions yet, so only another plugin, such as Multus, attaches Pods to it: create a network of apiVersion danm.io/v1, such as a ClusterNetwork",
			r.Kind.Kind, requestName(r)))
	}
	return admission.Allowed("").WithWarnings(fmt.Sprintf("%s/%s: Patchbay does not read apiVersion %s/%s: use danm.io/v1, which has the same fields",
		r.Kind.Kind, requestName(r), r.Kind.Group, r.Kind.Version))
}
