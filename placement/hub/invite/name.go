// SPDX-License-Identifier: Apache-2.0

package invite

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// longest leaves room for "cluster-" in the name of a namespace.
const longest = validation.DNS1123LabelMaxLength - len(v1alpha1.ClusterNamespacePrefix)

// CheckName refuses what no Cluster can be named.
func CheckName(name string) error {
	if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 || len(name) > longest {
		return fmt.Errorf("%q is no name of a Cluster: want at most %d lower case letters, digits and -: %s",
			name, longest, strings.Join(wrong, "; "))
	}
	return nil
}
