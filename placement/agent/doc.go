// SPDX-License-Identifier: Apache-2.0

// Package agent is placement in a workload cluster: it applies what the hub's Works
// say, repairs it, removes it when ordered, and reports exactly what the cluster has.
// Package placement has the contract.
//
// The agent dials the hub; nothing dials the agent. What it does depends on its own
// records (AppliedWorks) alone, so a hub that is away, restarted, empty or older
// removes nothing:
//
//   - an object is deleted only by an order in a Work, by the UID that the record has, or that
//     the order has where the record was lost;
//   - a Work that vanished leaves its record and objects, which are repaired as before;
//   - a Work of another hub, or one that does not continue what its record has seen, stands
//     still (halt): its objects are repaired from the record, other Works go on, and nothing is
//     removed, or begun that no record is of, until a person has answered.
//
// What the hub may do in the cluster its admin says: Guard has the kinds, and labels on
// namespaces, objects and ServiceAccounts the rest. In each namespace that it may write in
// the agent binds itself to one ClusterRole; elsewhere it has no right to write. A
// ValidatingAdmissionPolicy repeats these rules, for whoever has stolen its token.
//
// One worker has a Work at a time. What it would write it compares with what is there:
// an object that has our fields as they were applied last is not written again.
package agent
