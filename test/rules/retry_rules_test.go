// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// retryRules are about writes that fail or whose answers are lost, and about
// collecting what nobody covers.
func retryRules() []mutation {
	return []mutation{
		{
			name: "LostReplyIsDecidedFromTheEntry",
			rule: "any answer but success or Conflict: read with quorum and decide from the own entry",
			file: allocatorDir + "plan.go",
			old:  "return p.isKnown(a) || taken[a] || !p.draft.Entry.Contains(a)", new: "return p.isKnown(a) || taken[a]",
			test: "^TestClaimThroughFaults$",
		},
		{
			name: "LostReplyCostsNoSecondAddress",
			rule: "any answer but success or Conflict: read with quorum and decide from the own entry",
			file: allocatorDir + "grant.go",
			old:  "case len(tentative) > 0:", new: "case len(tentative) < 0:",
			test: "^TestClaimThroughFaults$",
		},
		{
			name: "PlannedAfresh",
			rule: "each attempt plans afresh from the object just read, never replays an old plan",
			file: allocatorDir + "commit.go",
			old:  "\tif err != nil {\n\t\treturn err\n\t}\n\tn.observeWritten(p, r, written)\n",
			new: "\tif err != nil {\n\t\tif now, bad := n.a.store.Get(ctx, n.key.Ref); bad == nil {\n\t\t\tp.next.ResourceVersion = now.ResourceVersion\n" +
				"\t\t\twritten, err = n.a.store.Update(ctx, p.next)\n\t\t}\n\t}\n\tif err != nil {\n\t\treturn err\n\t}\n\tn.observeWritten(p, r, written)\n",
			test: "^TestCollectMeetsAClaim$",
		},
		{
			name: "LateWriteIsFenced",
			rule: "an answer that was lost: a write that is still on its way is made to fail",
			file: allocatorDir + "plan.go",
			old:  "if p.fence && !p.changed {", new: "if false {",
			test: "^TestLateClaimOfNobodyIsFenced$",
		},
		{
			name: "CollectionSparesEntries",
			rule: "garbage collection frees only what no entry covers",
			file: statusDir + "draft.go",
			old:  "\t\t\t\tpool.MarkAllocated(a)\n", new: "\t\t\t\t_ = a\n",
			testPackage: "ipam/allocator", test: "^TestCollect",
		},
		{
			name: "CollectionSparesDanmEps",
			rule: "then a consistent LIST of DanmEps that shows no owner",
			file: statusDir + "draft.go",
			old:  "range d.owners.Others {\n\t\tpool.MarkAllocated(a)", new: "range d.owners.Others {\n\t\t_ = a",
			testPackage: "ipam/allocator", test: "^TestCollect$",
		},
		{
			name: "CollectionSparesWhatIsInUse",
			rule: "no address is on two live interfaces: not after a namespace was deleted by force",
			file: statusDir + "draft.go",
			old:  "if !inUse(a) && !covered.Has(a) {", new: "if !covered.Has(a) {",
			testPackage: "ipam/allocator", test: "^TestCollectSparesWhatIsInUseHere$",
		},
		{
			name: "CollectionNeedsAllEntries",
			rule: "an entry that cannot be read may cover anything",
			file: statusDir + "draft.go",
			old:  "return nil, fmt.Errorf(\"read entry of %q: %w: %w\", o.Name, ErrUnknownState, o.Err)", new: "continue",
			testPackage: "ipam/allocator", test: "^TestCollectNeedsToReadAllEntries$",
		},
		{
			name: "AuditReadsThenLists",
			rule: "quorum GET of the network, then a consistent LIST of DanmEps",
			file: gcDir + "collector.go",
			old:  "f func(*draft) error) error {\n\tnewest := c.versions.Newest(key)\n",
			new: "f func(*draft) error) error {\n\tearly, err := c.store.Endpoints(ctx, key.Ref)\n\tif err != nil {\n\t\treturn err\n\t}\n" +
				"\tnewest := c.versions.Newest(key)\n",
			andChange: textChange{
				"\tendpoints, err := ask(ctx, c.cfg.Timeout, func(ctx context.Context) ([]status.Endpoint, error) {\n\t\treturn c.store.Endpoints(ctx, key.Ref)\n\t})\n",
				"\tendpoints := early\n",
			},
			test: "^TestAudit",
		},
		{
			name: "AuditWritesWithThatVersion",
			rule: "then a write with the resourceVersion of that GET",
			file: gcDir + "collector.go",
			old:  "\tif err == nil && changed {\n",
			new:  "\tif err == nil && changed {\n\t\tif now, bad := c.store.Get(ctx, key.Ref); bad == nil {\n\t\t\tnext.ResourceVersion = now.ResourceVersion\n\t\t}\n",
			test: "^TestAudit",
		},
		{
			name: "OneWriteForAll",
			rule: "group commit: all claims and releases waiting for that network become one write",
			file: allocatorDir + "commit.go",
			old:  "\t\tclaims = claimsOf(requests)\n", new: "\t\tclaims = claimsOf(requests)\n\t\tclaims = claims[:min(len(claims), 1)]\n",
			test: "^TestGroupCommit$",
		},
	}
}
