// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Namespaces at the hub.
const (
	// ClusterNamespacePrefix with a Cluster's name is the namespace of its Works and
	// of its heartbeat.
	ClusterNamespacePrefix = "cluster-"
	// SystemNamespace holds the Assignments of cluster-scoped objects, and the
	// Customizations that are for all namespaces.
	SystemNamespace = "patchbay-system"
	// TermConfigMap in SystemNamespace has the hub's epoch and term.
	TermConfigMap = "patchbay-hub-term"
	// HeartbeatLease is the name of the agent's Lease in its cluster's namespace.
	HeartbeatLease = "agent"
)

// SecretCopyNamespace in a cluster has a Secret for each placed Secret, with its data, which the
// agent repairs with while its hub is away. Only the agent has rights there.
const SecretCopyNamespace = "patchbay-agent-secrets"

// Annotations on objects at the hub.
const (
	// ClustersAnnotation says where the object runs, before any policy: "east",
	// "east,west", "east=3,west=1", or "" for nowhere.
	ClustersAnnotation = "placement.patchbay.io/clusters"
	// SourceUIDAnnotation on an object in a cluster is the UID of the object at the
	// hub that it was made from.
	SourceUIDAnnotation = "placement.patchbay.io/source-uid"
	// ClusterUIDAnnotation on a Cluster's namespace at the hub is the Cluster's UID: the hub has
	// made the namespace, or an admin has handed it over.
	ClusterUIDAnnotation = "placement.patchbay.io/cluster-uid"
	// NamespaceUIDAnnotation on the ClusterRole of a Cluster's agent is the UID of the
	// Cluster's namespace.
	NamespaceUIDAnnotation = "placement.patchbay.io/namespace-uid"
	// DataVersionAnnotation on the Secret beside a Work tells its data from earlier ones.
	DataVersionAnnotation = "placement.patchbay.io/data-version"
	// HubUIDAnnotation on an object in a cluster is the UID of its hub.
	HubUIDAnnotation = "placement.patchbay.io/hub-uid"
	// ResumeAnnotation on a Work that does not fit its cluster's record is a person's answer.
	// ResumeAnswer makes it. kubectl patchbay hub resume sets it.
	ResumeAnnotation = "placement.patchbay.io/resume"
	// AppliedWorksAnnotation on a heartbeat is how many AppliedWorks the cluster has.
	AppliedWorksAnnotation = "placement.patchbay.io/applied-works"
)

// Labels that our programs set.
const (
	// ManagedLabel, "true", is on what an agent made in its cluster.
	ManagedLabel = "placement.patchbay.io/managed"
	// ManagedReleased is the value with which a person in the cluster keeps an object, when an order to
	// remove it has lost its record.
	ManagedReleased = "false"
	// SourceUIDLabel on Works and Assignments is the UID of the object at the hub.
	SourceUIDLabel = "placement.patchbay.io/source-uid"
	// JoinClusterLabel on a bootstrap token's Secret names the Cluster it is for.
	JoinClusterLabel = "placement.patchbay.io/join-cluster"
	// AccessLabel on a Namespace in a cluster says what the hub may do in it; without it
	// nothing. On a single object there it says so of that object. The cluster's admin sets
	// it, and the agent, with AccessMade, on namespaces that it makes. Manifests never have it.
	AccessLabel = "placement.patchbay.io/access"
)

// Values of AccessLabel.
const (
	// AccessOwned: the agent made the namespace, for the hub in its annotation hub-uid.
	AccessOwned = "owned"
	// AccessCreate: the hub may add objects to the namespace, and change those that it added.
	AccessCreate = "create"
	// AccessAdopt: besides, the hub may take over what is there (apply.conflict Adopt or
	// Force); on an object: that object.
	AccessAdopt = "adopt"
	// AccessUse, on a ServiceAccount: Pods from the hub may run as it.
	AccessUse = "use"
)

// Answers of ResumeAnnotation.
const (
	// TakeHub: the cluster takes over what the hub's Work says.
	TakeHub = "hub"
	// TakeCluster: the cluster keeps what its record says, until the hub next changes the Work.
	TakeCluster = "cluster"
)

// Finalizers.
const (
	// PlacedFinalizer on an object at the hub stays until no cluster has it.
	PlacedFinalizer = "placement.patchbay.io/placed"
)

// Identities of agents at the hub.
const (
	// ClusterUserPrefix with a Cluster's name is its agent's user name, the common
	// name of its certificate.
	ClusterUserPrefix = "system:patchbay:cluster:"
	// ClusterGroup is the group of all agents, the certificate's organization.
	ClusterGroup = "system:patchbay:clusters"
	// AgentAccount is the ServiceAccount in a cluster's namespace that its agent is
	// where certificates do not get through.
	AgentAccount = "agent"
	// BootstrapGroupPrefix with a Cluster's name is the group of its join token.
	BootstrapGroupPrefix = "system:bootstrappers:patchbay:"
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
	// MaxStatusBytes is the largest status of an object that comes back exactly, as JSON, if the
	// Work has room for it beside its manifests. Of a larger one come the conditions and the counts.
	MaxStatusBytes = 64 << 10
	// MaxObjectBytes is the largest object that our programs write, as JSON.
	MaxObjectBytes = 256 << 10
)
