// SPDX-License-Identifier: Apache-2.0

// Package works is placement in a workload cluster: it applies what the hub's Works
// say, repairs it, removes it when ordered, and reports exactly what the cluster has.
// Package placement has the contract.
//
// The agent dials the hub; nothing dials the agent. What it does depends on its own
// records (AppliedWorks), so a hub that is away, restarted, empty or older removes nothing:
//
//   - An object is deleted only by an order in a Work, and only by its UID: the one that the
//     record has. When the record is lost, it must have our marks and the UID in the order. What
//     may be the object and cannot be told to be it stays, and is reported (RecordLost).
//   - An order is reported as done (Removed) when the object is gone with its Pods, or released.
//     What holds a removal, or refuses it, is reported (RemovalBlocked, Refused); Pods that end
//     within their grace period hold nothing. What the agent may not read is not taken for gone.
//   - A Work that vanished leaves its record and objects, which are repaired as before.
//   - A Work that does not continue the history that its record has seen is halted: another hub
//     or epoch, a smaller revision of the same term, or a later term whose leader did not know
//     of the record's revision (Work.spec.history). Its record stays in force. The Works that
//     fit their records are applied as usual.
//   - While any Work is halted, the agent carries out no order and applies no Work without a
//     record. The Cluster's condition HubMismatch says so.
//   - A person ends that by an answer to each halted Work (ResumeAnnotation): the record takes
//     over the Work, or keeps its manifests at the Work's position. Objects keep their UIDs.
//   - An order in a record waits until the agent has all Works of the hub, because a halt may
//     be in force.
//
// No object that the agent writes is larger than MaxObjectBytes: large statuses come back as
// conditions and counts (Truncated), and a Work that is too large for its record is refused. The
// data of Secrets are in Secrets, here in those of CopyNamespace, and in no record, report or log.
//
// What the hub may do in the cluster its admin says: Guard has the kinds, and labels on
// namespaces, objects and ServiceAccounts the rest. In each namespace that it may write in
// the agent binds itself to one ClusterRole; elsewhere it has no right to write. A
// ValidatingAdmissionPolicy repeats these rules, in case that its token is stolen.
//
// One worker has a Work at a time. What it would write it compares with what is there:
// an object that has our fields as they were applied last is not written again.
package works
