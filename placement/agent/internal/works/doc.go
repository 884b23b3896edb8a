// SPDX-License-Identifier: Apache-2.0

// Package works applies the hub's Works in a workload cluster, repairs their objects, removes them when
// ordered, and reports their exact state. Package placement has the contract.
//
// The agent dials the hub, and nothing dials the agent. Its own records (AppliedWorks) decide what it does,
// so that it removes nothing when the hub is unreachable, restarted, empty or restored:
//
//   - The agent deletes an object only by an order in a Work, and only by the UID in its record. Without a
//     record, the object must have the agent's marks and the UID in the order. The agent keeps an object
//     that it cannot identify, and reports it (RecordLost).
//   - The agent reports an order as carried out (Removed) when the object and its Pods are gone, or the
//     object is released. It reports what blocks or rejects a removal (RemovalBlocked, Refused), but not
//     Pods within their grace period. An object that the agent may not read does not count as gone.
//   - When a Work is gone without an order, the agent keeps its record and objects, and repairs them.
//   - A Work that does not continue the history in its record is halted: one of another hub or epoch, with
//     a smaller revision of the same term, or with a later term whose leader did not know the recorded
//     revision (Work.spec.history). Its record stays in force. The agent applies other Works as usual.
//   - While any Work is halted, the agent carries out no order, and applies no Work without a record. The
//     Cluster's condition HubMismatch is True.
//   - A user ends that with an answer for each halted Work (ResumeAnnotation): the record gets the Work's
//     manifests, or keeps its own at the Work's position. Objects keep their UIDs.
//   - An order in a record waits until the agent has read all Works of the hub, because one may be halted.
//
// The agent writes no object larger than MaxObjectBytes: it reduces large statuses to conditions and counts
// (Truncated), and rejects a Work that is too large for its record. The data of placed Secrets are in
// Secrets only, in the cluster in those of SecretCopyNamespace, and in no record, report or log.
//
// The cluster's admin decides what the hub may do: Guard has the kinds, and labels on namespaces, objects
// and ServiceAccounts have the rest. In each namespace in which it may write, the agent binds itself to one
// ClusterRole; elsewhere it has no rights to write. A ValidatingAdmissionPolicy enforces the same rules, in
// case the agent's token is stolen.
//
// One worker at a time handles a Work. The agent compares before it writes: it does not apply an object
// whose fields are as it applied them last.
//
// The packages beside this one have what it needs: records stores the AppliedWorks, objectwatcher watches
// the applied objects, podindex finds their Pods, and managedfields tells which fields the agent applied.
package works
