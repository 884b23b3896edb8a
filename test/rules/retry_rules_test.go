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
			file: claimsDir + "cover.go",
			old:  "if used || kept[a] || !p.entry.contains(a) {", new: "if used || kept[a] {",
			test: "^TestClaimThroughFaults$",
		},
		{
			name: "LostReplyCostsNoSecondAddress",
			rule: "any answer but success or Conflict: read with quorum and decide from the own entry",
			file: claimsDir + "grant.go",
			old:  "case len(c.tentative) > 0 && kept[c.tentative[0]]:", new: "case len(c.tentative) < 0:",
			test: "^TestClaimThroughFaults$",
		},
		{
			name: "PlannedAfresh",
			rule: "each attempt plans afresh from the object just read, never replays an old plan",
			file: claimsDir + "write.go",
			old:  "\tif err != nil {\n\t\treturn err\n\t}\n\td.note(p, written)\n",
			new: "\tif err != nil {\n\t\tif now, bad := d.a.store.Get(ctx, d.key.Ref); bad == nil {\n\t\t\tp.next.ResourceVersion = now.ResourceVersion\n" +
				"\t\t\twritten, err = d.a.store.Update(ctx, p.next)\n\t\t}\n\t}\n\tif err != nil {\n\t\treturn err\n\t}\n\td.note(p, written)\n",
			test: "^TestCollectMeetsAClaim$",
		},
		{
			name: "LateWriteIsFenced",
			rule: "an answer that was lost: a write that is still on its way is made to fail",
			file: claimsDir + "plan.go",
			old:  "if p.fence && !p.changed {", new: "if false {",
			test: "^TestLateClaimOfNobodyIsFenced$",
		},
		{
			name: "CollectionSparesEntries",
			rule: "garbage collection frees only what no entry covers",
			file: claimsDir + "rebuild.go",
			old:  "\t\t\t\tpool.MarkAllocated(a)\n", new: "\t\t\t\t_ = a\n",
			test: "^TestCollect",
		},
		{
			name: "CollectionSparesDanmEps",
			rule: "then a consistent LIST of DanmEps that shows no owner",
			file: claimsDir + "rebuild.go",
			old:  "range p.owners.theirs {\n\t\tpool.MarkAllocated(a)", new: "range p.owners.theirs {\n\t\t_ = a",
			test: "^TestCollect$",
		},
		{
			name: "CollectionSparesWhatIsInUse",
			rule: "no address is on two live interfaces: not after a namespace was deleted by force",
			file: claimsDir + "rebuild.go",
			old:  "!known && !covered.Has(a)", new: "(known || !known) && !covered.Has(a)",
			test: "^TestCollectSparesWhatIsInUseHere$",
		},
		{
			name: "CollectionNeedsAllEntries",
			rule: "an entry that cannot be read may cover anything",
			file: claimsDir + "rebuild.go",
			old:  "return nil, fmt.Errorf(\"read entry of %q: %w: %w\", name, ErrUnknownState, err)", new: "continue",
			test: "^TestCollectNeedsToReadAllEntries$",
		},
		{
			name: "AuditReadsThenLists",
			rule: "quorum GET of the network, then a consistent LIST of DanmEps",
			file: claimsDir + "steward_change.go",
			old:  "\tobj, err := ask(ctx, a, func(ctx context.Context) (*Object, error) { return s.store.Get(ctx, key.Ref) })\n",
			new: "\tearly, err := s.store.Endpoints(ctx, key.Ref)\n\tif err != nil {\n\t\treturn err\n\t}\n" +
				"\tobj, err := ask(ctx, a, func(ctx context.Context) (*Object, error) { return s.store.Get(ctx, key.Ref) })\n",
			andChange: textChange{
				"\tendpoints, err := ask(ctx, a, func(ctx context.Context) ([]Endpoint, error) {\n\t\treturn s.store.Endpoints(ctx, key.Ref)\n\t})\n",
				"\tendpoints := early\n",
			},
			test: "^TestAudit",
		},
		{
			name: "AuditWritesWithThatVersion",
			rule: "then a write with the resourceVersion of that GET",
			file: claimsDir + "steward_change.go",
			old:  "\tif err == nil && changed {\n",
			new:  "\tif err == nil && changed {\n\t\tif now, bad := s.store.Get(ctx, key.Ref); bad == nil {\n\t\t\tnext.ResourceVersion = now.ResourceVersion\n\t\t}\n",
			test: "^TestAudit",
		},
		{
			name: "OneWriteForAll",
			rule: "group commit: all claims and releases waiting for that network become one write",
			file: claimsDir + "attempt.go",
			old:  "\t\tw.claims = d.claims\n", new: "\t\tw.claims = d.claims[:min(len(d.claims), 1)]\n",
			test: "^TestGroupCommit$",
		},
	}
}
