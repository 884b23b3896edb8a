// SPDX-License-Identifier: Apache-2.0

// Package scope reads all that a decision about one object depends on, into a Scope: an immutable
// snapshot, taken once at the beginning of each reconciliation. The stages after it compute from
// the Scope alone.
package scope

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/stability"
)

// ErrStale is returned when the API server has something else than the Scope: the object must be
// reconciled again when the cache has caught up.
var ErrStale = errors.New("it has changed since the cache was read")

// Scope is what is stored about one object and around it. Its objects may be the cache's own: no
// stage changes them.
type Scope struct {
	// Key of the object.
	Key kinds.Key
	// Kind of the object.
	Kind kinds.Kind
	// Now is when the Scope was read.
	Now time.Time
	// Object is read from the API server; nil: it does not exist.
	Object *unstructured.Unstructured
	// NamespaceLabels are those of the object's namespace.
	NamespaceLabels map[string]string
	// Policies that may select the object.
	Policies Policies
	// Rules are the Customizations of the object's namespace and of all namespaces.
	Rules *Rules
	// Assignment as stored; without a UID: there is none.
	Assignment *v1alpha1.Assignment
	// Works of the object, by cluster.
	Works map[string]*v1alpha1.Work
	// Reports of the Works, by cluster.
	Reports map[string]WorkReport
	// Observed are the recent reports, by cluster.
	Observed map[string]Observed
	// ObservedSince is when this leader began to observe reports.
	ObservedSince time.Time
	// DefaultStable is how long reports must last where no policy says it.
	DefaultStable time.Duration
	// GoneWorks are the clusters of which the API server has confirmed that a missing Work is gone.
	GoneWorks map[string]bool
	// Clusters are the whole inventory, by name.
	Clusters map[string]*v1alpha1.Cluster
	// TakenNamespaces are the clusters whose namespace the hub did not make: nothing is written there.
	TakenNamespaces map[string]bool
	// Silence counts the clusters that do not report.
	Silence policy.Silence
	// LossClocks has the times of each cluster that does not report.
	LossClocks map[string]policy.LossClock
	// DeclaredLost are the clusters that an admin has declared lost, and that have not reported since.
	DeclaredLost map[string]bool
	// RequiredIn are the clusters where another placed object needs this one.
	RequiredIn map[string]bool
	// ReplicaBounds are what an autoscaler must keep to in each cluster, for a move of what it scales.
	ReplicaBounds map[string]ReplicaBounds
	// WantedIn are the clusters where another placed object that needs this one is to stay, or to go.
	WantedIn map[string]bool
	// Claims are the volume claims that the object names, or is, by name.
	Claims map[string]Claim
	// PodPriority is the priority of the object's Pods. It is read only while a cluster of the object is drained.
	PodPriority int32
	// RequeueAfter is when to read again what could not be read; 0: all could be.
	RequeueAfter time.Duration
	// Traffic is what the endpoints of a Service on a ClusterNetwork depend on; nil for another object.
	Traffic *Traffic
	// Serving are the Works of the Services that have endpoints of the object's Pods, by name and cluster.
	Serving map[string]map[string]*v1alpha1.Work
}

// Observed are the reports of one cluster about the object.
type Observed struct {
	// Reports are the recent ones, and the one in Scope.Reports.
	Reports stability.History
	// Until is the time up to which they are complete; zero: unknown.
	Until time.Time
}

// ReplicaBounds are what an autoscaler must keep to in a cluster.
type ReplicaBounds struct {
	// Min is the least number of replicas.
	Min int32
	// Exact reports that Min is the most, too: the cluster loses its replicas step by step.
	Exact bool
}

// Alive reports whether the object exists and is not being deleted.
func (s *Scope) Alive() bool { return s.Object != nil && s.Object.GetDeletionTimestamp() == nil }

// Annotations returns the annotations of the object, and nil when it does not exist.
func (s *Scope) Annotations() map[string]string {
	if s.Object == nil {
		return nil
	}
	return s.Object.GetAnnotations()
}

// Reference returns a reference to the object, which must exist.
func (s *Scope) Reference() v1alpha1.ObjectReference {
	return v1alpha1.ObjectReference{
		Group: s.Kind.Group, Version: s.Kind.Version, Kind: s.Kind.Kind, Resource: s.Kind.Resource,
		Namespace: s.Key.Namespace, Name: s.Key.Name, UID: s.Object.GetUID(),
	}
}

// IsOfEarlierObject reports whether a Work carries an earlier object of the same name: the cluster
// must remove that one first.
func (s *Scope) IsOfEarlierObject(w *v1alpha1.Work) bool {
	return s.Object != nil && w.Spec.Source.UID != s.Object.GetUID()
}

// WritableCluster returns a Cluster of the inventory in whose namespace the hub may write.
func (s *Scope) WritableCluster(name string) (*v1alpha1.Cluster, bool) {
	c, ok := s.Clusters[name]
	return c, ok && !s.TakenNamespaces[name]
}

// LastPosition returns the position that a cluster's Work last had, as far as it was recorded.
func (s *Scope) LastPosition(cluster string) v1alpha1.WorkPosition {
	for _, c := range s.Assignment.Status.Clusters {
		if string(c.Cluster) == cluster {
			return v1alpha1.WorkPosition{Term: c.Term, Revision: c.Revision}
		}
	}
	return v1alpha1.WorkPosition{}
}

// WasSent reports whether a Work was once written for a cluster. If it is missing although no
// removal was reported, it was lost.
func (s *Scope) WasSent(cluster string) bool { return s.LastPosition(cluster).Revision > 0 }

// Sooner returns the earlier of two times to reconcile again; 0 is never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
