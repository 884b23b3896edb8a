// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// Scheme knows Kubernetes' kinds and ours.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s)) // fails only for a kind registered twice
	utilruntime.Must(v1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}
