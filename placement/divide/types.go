// SPDX-License-Identifier: Apache-2.0

package divide

// Limits of what is divided. They keep every product of a comparison within 64 bits
// and a division within a second.
const (
	// MaxTotal is the largest number of replicas of one object.
	MaxTotal = 1_000_000
	// MaxWeight is the largest weight.
	MaxWeight = 1_000_000
)

// Row is one cluster.
type Row struct {
	// Name is the cluster's, unique among the rows.
	Name string
	// Weight is its part of what is divided, relative to the others'. With 0 it gets
	// its minimum and no more.
	Weight int64
	// Min is what it gets before anybody gets more than theirs, as far as Capacity
	// allows.
	Min int64
	// Max is what the policy lets it have at most; nil is no limit. It is not less than Min.
	Max *int64
	// Capacity is what it has room for in all, Current included; nil is no limit, 0 a
	// cluster that is drained.
	Capacity *int64
	// Current is what it has now, 0 for a new division.
	Current int64
}

// Bound is what keeps a cluster from having more.
type Bound string

// What bounds a cluster.
const (
	// BoundNone leaves it room.
	BoundNone Bound = ""
	// BoundWeight is a weight of 0.
	BoundWeight Bound = "weight"
	// BoundMax is Row.Max.
	BoundMax Bound = "max"
	// BoundCapacity is Row.Capacity.
	BoundCapacity Bound = "capacity"
)

// Share is what one cluster gets.
type Share struct {
	// Name is the row's.
	Name string
	// Replicas are what it gets, between 0 and the total.
	Replicas int64
	// Short is how many replicas are missing to its Min.
	Short int64
	// Full is what keeps it from having more, if anything does.
	Full Bound
}

// Result is a division.
type Result struct {
	// Shares are one for each row, in the order of names.
	Shares []Share
	// Unplaced are the replicas for which no cluster has room.
	Unplaced int64
}
