// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/internal/attachments"
)

// fact is what is read at once. A stage names those that it needs, because a cluster may have many objects.
type fact int

// The facts.
const (
	// installed are Another, NamespaceEnding and DaemonSet.
	installed fact = iota
	// attached is Attached.
	attached
	// daemons are the Nodes with a daemon, ProgramPods, Foreign and Others.
	daemons
	// reported are Nodes and Reports. They need daemons.
	reported
	// stopped is Stopped. It needs attached and reported.
	stopped
	// applied is Programs, and Denied of them.
	applied
	// protected is Protected.
	protected
	// defined are Definitions and Blocking, and Denied of them.
	defined
)

// Facts are what the next Step is computed from.
type Facts struct {
	// Force uninstalls under attached Pods, and without nodes that do not report.
	Force bool
	// RemoveDefinitions also deletes the CustomResourceDefinitions.
	RemoveDefinitions bool
	// Ignored are annotations with a value that does not count.
	Ignored []string
	// Another is why another installation of Patchbay runs, empty for none.
	Another string
	// NamespaceEnding means that the namespace of the programs is being deleted, which the operator never does.
	NamespaceEnding bool

	// Attached are all DanmEps, also those whose Pod is gone.
	Attached []attachments.Attachment

	// DaemonSet is that of the node daemon, nil if it is gone.
	DaemonSet *DaemonSet
	// Nodes are those that have a daemon or its report, sorted by name.
	Nodes []Node
	// Foreign are Pods with the label of a program that no DaemonSet or ReplicaSet of it owns, such as a copy for a search
	// for errors, or a mirror Pod. The operator does not delete them.
	Foreign []string
	// Others are Deployments with the name of a program that the operator has not applied, such as the agent of
	// `kubectl patchbay cluster join`. They stay.
	Others []string

	// Stopped are the hosts of Attached on which no container without a Pod runs: they have reported that they are
	// cleaned up, or have no Node object.
	Stopped map[string]bool

	// Programs are what was applied, without DaemonSet, definitions and namespaces, in the order of removal.
	Programs []Group
	// ProgramPods are Pods of controller and agent that still run, without those of Others.
	ProgramPods []string
	// Denied are objects that look as if the operator had applied them, and that it does not apply and may not delete.
	Denied []string

	// Reports are the NodeNetworks of nodes that are cleaned up, without those that are being deleted.
	Reports []metav1.PartialObjectMetadata

	// Protected are the networks with the finalizer danm.io/in-use.
	Protected []metav1.PartialObjectMetadata
	// Definitions that were applied, and are to be deleted. Blocking are the objects of them that finalizers of other
	// programs keep.
	Definitions []metav1.PartialObjectMetadata
	Blocking    []string
}

// DaemonSet is the state of the node daemon's DaemonSet.
type DaemonSet struct {
	metav1.PartialObjectMetadata

	// Requested is whether it has the annotation by which daemons know that they are to clean up.
	Requested bool
}

// Node is a node, and what its daemon has left.
type Node struct {
	Name string
	// Ready is whether the node is.
	Ready bool
	// Running is whether the daemon's Pod exists. Overdue is whether it does so for longer than it should take to end.
	Running, Overdue bool
	// CleanedUp is whether the daemon has reported that it has cleaned up. UnderPods is whether sandboxes with networks
	// were left then. Message is its report.
	CleanedUp, UnderPods bool
	Message              string
	// WithoutDanmEp is what the daemon reports of Pods that are attached and have no DanmEp, empty for none.
	WithoutDanmEp string
}

// pods returns the attachments of Pods that exist, or of those that do not.
func (f *Facts) pods(exist bool) []attachments.Attachment {
	var found []attachments.Attachment
	for i := range f.Attached {
		if f.Attached[i].PodExists == exist {
			found = append(found, f.Attached[i])
		}
	}
	return found
}
