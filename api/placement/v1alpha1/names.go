// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Namespaces at the hub.
const (
	// ClusterNamespacePrefix and a Cluster's name are the namespace of its Works and its heartbeat.
	ClusterNamespacePrefix = "cluster-"
	// SystemNamespace has the Assignments of cluster-scoped objects, and the Customizations for all
	// namespaces.
	SystemNamespace = "patchbay-system"
	// TermConfigMap in SystemNamespace has the hub's epoch and term.
	TermConfigMap = "patchbay-hub-term"
	// HeartbeatLease is the name of the agent's Lease in its cluster's namespace.
	HeartbeatLease = "agent"
)

// SecretCopyNamespace in a cluster has copies of the data of placed Secrets, so that the agent can repair
// these while its hub is unreachable. Only the agent has rights there.
const SecretCopyNamespace = "patchbay-agent-secrets"

// Annotations on objects at the hub.
const (
	// ClustersAnnotation names the clusters where the object runs, such as "east", "east,west" or
	// "east=3,west=1"; an empty value removes the object from all clusters. It takes precedence over policies.
	ClustersAnnotation = "placement.patchbay.io/clusters"
	// DrainPriorityAnnotation on an object is an integer. Objects with a greater one leave a draining cluster
	// first. Without it, the priority is that of the object's Pods.
	DrainPriorityAnnotation = "placement.patchbay.io/drain-priority"
	// ConflictAnnotation with the value Adopt has the same effect for this object as apply.conflict of a policy, and
	// takes precedence over it: the hub adopts an object that exists in a cluster, if the cluster's admin allows
	// that. kubectl patchbay import sets it, and removes it after the adoption.
	ConflictAnnotation = "placement.patchbay.io/conflict"
	// OnDeleteAnnotation with the value Orphan or Delete has the same effect for this object as onDelete of a
	// policy, and takes precedence over it. kubectl patchbay export sets it. When it is removed, its value stays
	// in force until a policy selects the object.
	OnDeleteAnnotation = "placement.patchbay.io/on-delete"
	// RebalanceAnnotation on an object: each new value divides its replicas again, once. Without it, replicas stay
	// where they are when clusters get room.
	RebalanceAnnotation = "placement.patchbay.io/rebalance"
	// StretchedAnnotation with the value "true" on a ClusterNetwork is a network administrator's statement that the
	// network's VLAN or VXLAN is one layer 2 segment in all clusters whose ClusterNetwork has the annotation.
	StretchedAnnotation = "placement.patchbay.io/stretched"
	// SourceUIDAnnotation on an object in a cluster is the UID of its source object at the hub.
	SourceUIDAnnotation = "placement.patchbay.io/source-uid"
	// ClusterUIDAnnotation on a Cluster's namespace at the hub is the Cluster's UID: the hub created the
	// namespace, or an admin assigned it to the Cluster.
	ClusterUIDAnnotation = "placement.patchbay.io/cluster-uid"
	// NamespaceUIDAnnotation on the ClusterRole of a Cluster's agent is the UID of the
	// Cluster's namespace.
	NamespaceUIDAnnotation = "placement.patchbay.io/namespace-uid"
	// DataVersionAnnotation on the Secret beside a Work is the version of its data.
	DataVersionAnnotation = "placement.patchbay.io/data-version"
	// FencedClaimAnnotation on a PersistentVolume in a cluster is the claim that it belongs to, as JSON with namespace,
	// name and uid, while the agent lets no Pod use it.
	FencedClaimAnnotation = "placement.patchbay.io/fenced-claim"
	// VolumeAttributesAnnotation on a CSIDriver in a cluster lists the attributes that a volume from another cluster
	// may have, separated by commas: KEY for one that differs between volumes, KEY=VALUE for one that must have this
	// value. The cluster's admin sets it.
	VolumeAttributesAnnotation = "placement.patchbay.io/volume-attributes"
	// HubUIDAnnotation on an object in a cluster is the UID of its hub.
	HubUIDAnnotation = "placement.patchbay.io/hub-uid"
	// ResumeAnnotation on a halted Work is a user's answer, whose value is a ResumeAnswer. kubectl patchbay hub
	// resume sets it.
	ResumeAnnotation = "placement.patchbay.io/resume"
	// AppliedWorksAnnotation on a heartbeat is how many AppliedWorks the cluster has.
	AppliedWorksAnnotation = "placement.patchbay.io/applied-works"
	// ReportDelayAnnotation on a heartbeat is the age of the oldest change in the cluster that the agent has
	// not reported yet, and the renewTime that it belongs to, such as "0s@2026-01-02T03:04:05.000000Z". The age is
	// empty while the agent cannot read the cluster's API server. With another renewTime, the annotation is what
	// a later version of the agent has left.
	ReportDelayAnnotation = "placement.patchbay.io/report-delay"
)

// Labels that Patchbay's programs set.
const (
	// ManagedLabel is "true" on objects that an agent created or adopted in its cluster.
	ManagedLabel = "placement.patchbay.io/managed"
	// ManagedReleased is the value of ManagedLabel with which a user in the cluster keeps an object whose
	// record is lost, despite an order to remove it.
	ManagedReleased = "false"
	// SourceUIDLabel on Works and Assignments is the UID of the object at the hub.
	SourceUIDLabel = "placement.patchbay.io/source-uid"
	// JoinClusterLabel on the Secret of a bootstrap token is the name of the token's Cluster.
	JoinClusterLabel = "placement.patchbay.io/join-cluster"
	// AccessLabel on a Namespace in a cluster is what the hub may do in it; without the label nothing. On
	// another object it is what the hub may do with that object. The cluster's admin sets it. The agent
	// sets it to AccessOwned on namespaces that it creates, and removes it from manifests.
	AccessLabel = "placement.patchbay.io/access"
)

// Values of AccessLabel.
const (
	// AccessOwned: the agent created the namespace for the hub in HubUIDAnnotation.
	AccessOwned = "owned"
	// AccessCreate: the hub may create objects in the namespace, and change those that it created.
	AccessCreate = "create"
	// AccessAdopt: the hub may also adopt existing objects of the namespace (apply.conflict Adopt or Force);
	// on an object: that object.
	AccessAdopt = "adopt"
	// AccessUse, on a ServiceAccount: Pods from the hub may run as it; on a CSIDriver: the hub may move its volumes.
	AccessUse = "use"
)

// Answers of ResumeAnnotation.
const (
	// TakeHub: the cluster gets the manifests of the hub's Work.
	TakeHub = "hub"
	// TakeCluster: the cluster keeps the manifests of its record until the hub next changes the Work.
	TakeCluster = "cluster"
)

// Finalizers.
const (
	// PlacedFinalizer on an object at the hub stays until no cluster has the object.
	PlacedFinalizer = "placement.patchbay.io/placed"
)

// Identities of agents at the hub.
const (
	// ClusterUserPrefix and a Cluster's name are the user name of its agent, the common name of the
	// certificate.
	ClusterUserPrefix = "system:patchbay:cluster:"
	// ClusterGroup is the group of all agents, the certificate's organization.
	ClusterGroup = "system:patchbay:clusters"
	// AgentAccount is the ServiceAccount in a cluster's namespace as which its agent authenticates with
	// tokens.
	AgentAccount = "agent"
	// BootstrapGroupPrefix and a Cluster's name are the group of its join token.
	BootstrapGroupPrefix = "system:bootstrappers:patchbay:"
)

// The aggregated API by which people at the hub reach the API servers of clusters. Its resource is clusters, with the
// subresources attach for agents and proxy for people.
const (
	// DebugGroup is the API's group. GroupName has definitions only.
	DebugGroup = "debug.placement.patchbay.io"
	// DebugVersion is the API's version.
	DebugVersion = "v1alpha1"
	// DebugUserPrefix and a user's name at the hub are the name as which the agent sends the user's requests to its
	// cluster.
	DebugUserPrefix = "patchbay:"
	// DebugUsersGroup is the group of all these users in a cluster.
	DebugUsersGroup = "patchbay:users"
)

// FieldManagers of server-side apply.
const (
	// HubFieldManager is the field manager of patchbay-hub.
	HubFieldManager = "patchbay-hub"
	// AgentFieldManager is the field manager of patchbay-agent, at the hub and in its
	// cluster.
	AgentFieldManager = "patchbay-agent"
)

// Limits of machine-owned objects.
const (
	// MaxTargets is the largest number of clusters of one Assignment.
	MaxTargets = 500
	// MaxManifestBytes is the largest rendered manifest, as JSON.
	MaxManifestBytes = 192 << 10
	// MaxStatusBytes is the largest status of an object that agents report exactly, as JSON, if the Work has
	// room for it beside its manifests. Of a larger one they report conditions and counts.
	MaxStatusBytes = 64 << 10
	// MaxObjectBytes is the largest object that Patchbay's programs write, as JSON.
	MaxObjectBytes = 256 << 10
)
