// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// UninstallFinalizer is on an Installation of which objects were applied. The operator removes it when it has
// uninstalled them.
const UninstallFinalizer = "operator.patchbay.io/uninstall"

// Annotations of an Installation that say how it is uninstalled. They may be set before its deletion, and while it
// is being deleted. Only the value true counts.
const (
	// ForceUninstallAnnotation uninstalls while Pods are attached, which keep their interfaces, and without the
	// nodes that do not report.
	ForceUninstallAnnotation = "operator.patchbay.io/force-uninstall"
	// RemoveDefinitionsAnnotation also deletes the CustomResourceDefinitions, and with them all networks.
	RemoveDefinitionsAnnotation = "operator.patchbay.io/remove-definitions"
)

// CleanUpAnnotation on the DaemonSet patchbayd is the UID of the Installation that is being uninstalled. A node
// daemon whose DaemonSet has it, and is being deleted, also removes the host links that no Pod uses, and reports
// ConditionCleanedUp.
const CleanUpAnnotation = "operator.patchbay.io/clean-up"

// ConditionCleanedUp of a NodeNetwork: the node's daemon has stopped for good, and has removed what it had made on
// the node.
const ConditionCleanedUp = "CleanedUp"

// CleanUpComplete is the message of a node on which nothing is left.
const CleanUpComplete = "CNI configuration removed"

// CleanUpMessage is the message of a ConditionCleanedUp. It names the Installation, because the report of an earlier
// uninstallation does not count for a later one.
func CleanUpMessage(installation types.UID, message string) string {
	return cleanUpPrefix(installation) + message
}

// CutCleanUpMessage returns a message without the Installation that it names. It returns false if that is another
// one.
func CutCleanUpMessage(installation types.UID, message string) (string, bool) {
	return strings.CutPrefix(message, cleanUpPrefix(installation))
}

func cleanUpPrefix(installation types.UID) string {
	return "Installation " + string(installation) + ": "
}
