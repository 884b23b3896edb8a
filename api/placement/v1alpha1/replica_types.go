// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ReplicaMode says what each cluster gets of an object's replicas.
// +kubebuilder:validation:Enum=Duplicate;Divide;Single
type ReplicaMode string

// Modes of replicas.
const (
	// ReplicasDuplicate: every cluster gets the object as it is.
	ReplicasDuplicate ReplicaMode = "Duplicate"
	// ReplicasDivide: the clusters share the object's replicas.
	ReplicasDivide ReplicaMode = "Divide"
	// ReplicasSingle: one cluster gets the object.
	ReplicasSingle ReplicaMode = "Single"
)

// DivideBy says by what replicas are divided.
// +kubebuilder:validation:Enum=Static;Available
type DivideBy string

// What replicas are divided by.
const (
	// DivideStatic divides by weights.
	DivideStatic DivideBy = "Static"
	// DivideAvailable divides by free room; not served yet.
	DivideAvailable DivideBy = "Available"
)

// ReplicaPolicy says how replicas are divided.
// +kubebuilder:validation:XValidation:rule=`!has(self.by) || self.by != "Available"`,fieldPath=`.by`,reason=FieldValueForbidden,message=`dividing by available room is not served yet: use Static`
type ReplicaPolicy struct {
	// Mode. Default: Divide for Deployments and ReplicaSets, Single for StatefulSets,
	// Jobs, Pods and PersistentVolumeClaims, Duplicate for all else. Kinds without replicas
	// take Divide as Duplicate; a Job's parallelism and completions are divided.
	// +optional
	Mode ReplicaMode `json:"mode,omitempty"`

	// Weights of clusters by name; one that is not named has weight 1 if none is,
	// else 0.
	// +optional
	// +kubebuilder:validation:MaxProperties=500
	Weights map[string]Weight `json:"weights,omitempty"`

	// Min replicas in each cluster by name, as long as there are enough.
	// +optional
	// +kubebuilder:validation:MaxProperties=500
	Min map[string]Replicas `json:"min,omitempty"`

	// Max replicas in each cluster by name.
	// +optional
	// +kubebuilder:validation:MaxProperties=500
	Max map[string]Replicas `json:"max,omitempty"`

	// By what the replicas are divided.
	// +optional
	// +kubebuilder:default=Static
	By DivideBy `json:"by,omitempty"`
}

// Weight of a cluster in a division.
// +kubebuilder:validation:Minimum=0
// +kubebuilder:validation:Maximum=1000000
type Weight int32

// Replicas of an object in a cluster.
// +kubebuilder:validation:Minimum=0
// +kubebuilder:validation:Maximum=1000000
type Replicas int32
