// SPDX-License-Identifier: Apache-2.0

// Package placement is the folder of placement over many clusters. It holds no code:
// this page fixes what its packages owe each other.
//
//	divide, mover, summary   pure: numbers, steps and statuses; no client, clock, log
//	render                   pure: from an object at the hub to a manifest
//	hub                      the controllers at the hub
//	agent                    the controllers in a workload cluster
//
// # Names
//
// A Cluster named east has the namespace cluster-east at the hub. An object at the
// hub that is placed has one Assignment, in its namespace (patchbay-system for a
// cluster-scoped one), and one Work per target, in the target's namespace. Both, and
// the agent's AppliedWork, bear the name that package render's Name makes of group, kind,
// namespace and name of the object. So each object of a cluster is in one Work only,
// and nobody counts references: a ConfigMap that two Deployments name has an
// Assignment of its own, whose targets are the union of theirs.
//
// # Who writes and deletes what
//
//	Cluster.spec            people only
//	Cluster.status          agent: allocatable, requested, versions, hubUID, HubMismatch;
//	                        hub: assigned and the other conditions; both by server-side apply
//	Assignment              hub
//	Work.metadata, .spec    hub; deleted by the hub when its removal is reported
//	Secret beside a Work    hub, before the Work that names its version: the data of a Secret
//	Work.status             agent
//	AppliedWork             agent; written before the first object is
//	Lease cluster-x/agent   agent, every 10 s (leaseDurationSeconds 40, holderIdentity the Pod)
//	status of the object    hub, from Works
//
// All compare before they write: what is settled is not written again. The Lease is
// the only write of a settled system.
//
// # A Work's life
//
//  1. The hub creates it, or changes its spec and increases revision in the same write.
//     It signs each with its epoch and term, and appends to history the last revision of an
//     earlier term, when it is the first of its term to change the Work.
//  2. The agent halts a Work that does not continue what its AppliedWork has: of another
//     hubUID or epoch, of an earlier term or a smaller revision of the same one, of a later
//     term whose history does not have the record's term with its revision, or of the same
//     position with another spec. The objects are repaired from the AppliedWork, status.halted
//     and HubMismatch (on Cluster and AppliedWork) say so, and until ResumeAnnotation
//     answers, no Work of the cluster is removed, or begun without an AppliedWork.
//  3. Else it stores the spec in the AppliedWork, then applies the manifests in order,
//     by server-side apply as patchbay-agent, without force unless spec.apply says so.
//     It makes a missing namespace, and writes in those that it made for this hub and in
//     those that the cluster's admin labelled (AccessLabel). An object that exists without
//     our record is somebody else's: Refuse reports it, Adopt takes it over where the admin
//     allows that. Every object gets the label managed and the annotations source-uid and
//     hub-uid.
//  4. It reports status.revision, conditions Applied and Ready, and each manifest's
//     entry: exact status with the generation that it was read with. At most one
//     report a second per Work, the first one at once; a failure of one manifest
//     does not stop the others.
//  5. To remove, the hub sets spec.removal, with a new revision, and leaves the manifests in
//     place. The agent deletes each object by the UID in its record (Delete, in reverse
//     order; workloads of Kubernetes in the foreground, so that they are gone after their
//     Pods) or drops label, annotations and ownership (Orphan); when all are gone it deletes
//     the AppliedWork and then reports Applied=False with the reason Removed at that
//     revision. A removal whose sourceUID is not the recorded one is refused (reason
//     Refused). Without an AppliedWork the agent removes what has our marks for this source
//     and, where removal.uids has one, that UID; what it cannot tell apart it refuses
//     (RecordLost). What a finalizer holds is reported (RemovalBlocked).
//  6. The hub sees Removed and deletes the Work, then drops the target. For a target that
//     is wanted again before that it takes the order back, in the same Work.
//
// What runs once (Pod, Job) is never made a second time in a cluster: once its UID is
// recorded and it is gone there, the agent reports the manifest as Applied=False with
// the reason DeletedInCluster. The hub then deletes its Pod, as an eviction would; a Job stays.
//
// Of a network of danm.io the agent reports conditions, allocated, capacity and
// observedGeneration only: with the bitmap each claim of an address would be a write
// at the hub.
//
// A Work that vanishes without an order, or a hub that cannot be reached, removes nothing:
// the AppliedWork becomes Orphaned, its objects stay and are still repaired. A
// manifest that is no longer listed is kept, too.
//
// # Replicas
//
// The mover decides a target's asked; the hub renders it as spec.replicas (for a Job
// parallelism, and completions). Where spec.apply.yield or createOnly names
// spec.replicas the agent cedes the field to its other owner.
//
// # Packages
//
//	divide.Divide(total, rows) (Result, error)     placement/internal/apportion
//	mover.Step(mover.Input) mover.Output           placement/internal/migration
//
//	// summary: rows are the clusters that report. Observed is the generation of the hub's
//	// object that Status speaks of; Exact translates observedGeneration for one cluster,
//	// Sum builds the kind's summary, with conditions computed and lastTransitionTime kept
//	// from object's present status where the status of the condition is the same. Neither
//	// changes its arguments; nil says that the kind has no summary (write nothing).
//	summary.Row{Cluster string; Observed, Generation int64; Asked *int32; Ready, Reachable bool;
//	            Status map[string]any}
//	summary.Exact(object *unstructured.Unstructured, row Row) map[string]any
//	summary.Sum(object *unstructured.Unstructured, rows []Row, now time.Time) (map[string]any, error)
//	summary.Counts(gk schema.GroupKind, status map[string]any) v1alpha1.ReplicaCounts
//
//	// render
//	render.Name(group, kind, namespace, name string) string  // at most 63 bytes, a DNS label
//	render.Follow(object) []Reference{Group, Kind, Namespace, Name}  // what its Pod template names
//	render.Along() []schema.GroupVersionKind; render.GoesAlong(object, workload) bool  // Services, autoscalers
//	render.Compile([]v1alpha1.Customization) (*Rules, []error)       // an error names the object and field
//	(*Rules).Apply(object, *v1alpha1.Cluster) error                  // in place; an error names the rule
//	render.Prune(object)                           // what a cluster owns, and what is the hub's alone
//	render.SetReplicas(object, n) / render.Replicas(object) (n int32, has bool)
//	render.Requests(object) corev1.ResourceList    // of one replica's Pod
//
// # How an agent gets in
//
// `kubectl patchbay hub token east` makes a bootstrap token (Secret in kube-system, label
// placement.patchbay.io/join-cluster=east, extra group system:bootstrappers:patchbay:east). With
// it the agent creates a CertificateSigningRequest for the signer
// kubernetes.io/kube-apiserver-client, CN system:patchbay:cluster:east, O
// system:patchbay:clusters, usages client auth (and digital signature, key encipherment).
// The hub approves it only when the Cluster east exists with spec.accepted, and the
// requester has the group system:bootstrappers:patchbay:east or is that very user
// (rotation). Else it waits. The hub then makes namespace, Role and RoleBinding in
// cluster-east (works get, list, watch; works/status get, update, patch; leases; events
// create, patch) and the ClusterRole of the same name (clusters east get; its status
// get, patch; namespace kube-system get, for the hub's UID). client-go's certificate
// manager rotates it. Behind a balancer that ends TLS, where certificates do not get
// through, the agent is the ServiceAccount agent in cluster-east instead: the join token
// may create its first token there, that one the next.
package placement
