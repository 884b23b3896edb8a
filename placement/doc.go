// SPDX-License-Identifier: Apache-2.0

// Package placement is the folder of placement over many clusters. It has no code. This page is the contract
// between its packages.
//
//	internal/policy, apportion, migration, render, aggregate   pure functions: no client, clock or log
//	hub                                                        the program patchbay-hub
//	agent                                                      the program patchbay-agent
//
// # Names
//
// The Cluster east has the namespace cluster-east at the hub. A placed object has one Assignment, in its
// namespace (patchbay-system for a cluster-scoped object), and one Work per target, in the target's
// namespace. Assignment, Works and the agent's AppliedWork have the name that v1alpha1.WorkName computes
// from group, kind, namespace and name of the object. So each object of a cluster is in one Work only, and
// no references are counted: a ConfigMap that two Deployments need has an Assignment of its own, whose
// targets are the union of theirs.
//
// # Who writes what
//
//	Cluster.spec            users
//	Cluster.status          agent: allocatable, requested, versions, hubUID, HubMismatch;
//	                        hub: assigned and the other conditions; both by server-side apply
//	Assignment              hub
//	Work.metadata, .spec    hub; it deletes the Work when the removal is reported
//	Secret beside a Work    hub: the data of a placed Secret, before the Work that names its version
//	Work.status             agent
//	AppliedWork             agent; before it creates the first object
//	Lease cluster-x/agent   agent, every 10 s (leaseDurationSeconds 40, holderIdentity is the Pod);
//	                        its annotations date the reports in the Works' status
//	status of the object    hub, from the Works
//
// All programs compare before they write. The Lease is the only write of a settled system.
//
// # A Work from creation to removal
//
//  1. The hub creates the Work, or changes its spec and increases the revision in the same write. Each spec
//     has the hub's epoch and term. When a leader is the first of its term to change the Work, it appends
//     the last revision of the earlier term to the history.
//  2. The agent halts a Work that does not continue its AppliedWork: one of another hubUID or epoch, of an
//     earlier term, with a smaller revision of the same term, of a later term whose history lacks the
//     recorded term with its revision, or with another spec at the same position. The agent repairs the
//     objects from the AppliedWork, sets status.halted and HubMismatch (on Cluster and AppliedWork), and
//     until a ResumeAnnotation answers, it removes no Work of the cluster and begins none without an
//     AppliedWork.
//  3. Else the agent stores the spec in the AppliedWork, and then applies the manifests in order, by
//     server-side apply as patchbay-agent, with force only if spec.apply requests it. It creates a missing
//     namespace, and writes in namespaces that it created for this hub or that the cluster's admin labelled
//     (AccessLabel). An existing object without a record has another owner: Refuse reports that, Adopt
//     adopts it where the admin allows it. Each object gets the label managed and the annotations source-uid
//     and hub-uid.
//  4. The agent reports status.revision, the conditions Applied and Ready, and an entry for each manifest:
//     the exact status with the generation that was read with it. It sends at most one report per second and
//     Work, the first one at once. A failure of one manifest does not stop the others.
//  5. To remove the objects, the hub sets spec.removal with a new revision, and leaves the manifests. The
//     agent deletes each object by the UID in its record (Delete, in reverse order; workloads of Kubernetes
//     in the foreground, so that they are gone after their Pods), or removes label, annotations and field
//     ownership (Orphan). When all are gone, it deletes the AppliedWork, and then reports Applied=False with
//     the reason Removed at that revision. It rejects a removal whose sourceUID is not the recorded one
//     (Refused). Without an AppliedWork it removes objects with its marks for this source and, if
//     removal.uids has one, with that UID; it reports objects that it cannot identify (RecordLost). It
//     reports what blocks a deletion, such as a finalizer (RemovalBlocked).
//  6. When the hub sees Removed, it deletes the Work, and then drops the target. For a target that is wanted
//     again before that, it withdraws the order in the same Work.
//
// The agent never creates an object that runs once (Pod, Job) a second time in a cluster: when its UID is
// recorded and the object is gone, the agent reports the manifest as Applied=False with the reason DeletedInCluster. The
// hub then deletes its Pod, as an eviction would; a Job stays.
//
// Of a network of danm.io the agent reports only conditions and pools: with the
// allocation bitmap, each address claim would be a write at the hub.
//
// A Work that is gone without an order, or an unreachable hub, removes nothing: the AppliedWork becomes
// Orphaned, and its objects stay and are still repaired. An object whose manifest is no longer listed stays,
// too.
//
// # Replicas
//
// Package migration decides the requested replicas of a target. The hub renders them as spec.replicas (for a
// Job as parallelism and completions). Where spec.apply.yield or createOnly names spec.replicas, the agent
// leaves the field to its other owner. A move of such an object keeps what its autoscalers run: the hub stores
// that as autoscaledReplicas, orders it as minReplicas of a Work, and bounds HorizontalPodAutoscalers.
//
// # Functions
//
//	policy.Resolve(object, placements, clusterPlacements)     the effective policy of an object
//	(*policy.EffectivePolicy).Plan(input)                     its targets and their replicas
//	apportion.Divide(total, clusters)                         the division of replicas
//	migration.Step(input)                                     the next states and requested replicas
//	render.Prune, (*Rules).Apply, SetReplicas, MarshalManifest  the manifest of an object for a cluster
//	render.Dependencies, IsCompanionOf                        the objects that are placed with it
//	aggregate.TranslateStatus, SumStatuses, ReplicaCounts     the status of an object from reports
//
// # How an agent joins
//
// `kubectl patchbay hub token east` creates a bootstrap token (a Secret in kube-system with the label
// placement.patchbay.io/join=east and the extra group system:bootstrappers:patchbay:east). With it the agent
// creates a CertificateSigningRequest for the signer kubernetes.io/kube-apiserver-client, with the common
// name system:patchbay:cluster:east, the organization system:patchbay:clusters, and the usages client auth,
// digital signature and key encipherment. The hub approves the request only when the Cluster east exists
// with spec.accepted, and the requester has the group system:bootstrappers:patchbay:east or is the agent
// itself (rotation). Until then the request waits.
//
// The hub creates the namespace, a Role and a RoleBinding in cluster-east (works get, list, watch;
// works/status get, update, patch; leases; events create, patch), and the ClusterRole of the same name
// (clusters east get; its status get, patch; namespace kube-system get, for the hub's UID). client-go's
// certificate manager renews the certificate. Behind a load balancer that terminates TLS, where client
// certificates do not work, the agent authenticates as the ServiceAccount agent in cluster-east: the join
// token may create its first token, and each token the next one.
package placement
