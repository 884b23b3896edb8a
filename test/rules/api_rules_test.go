// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// apiRules are kept by what is asked of the API server, which only a real one
// can tell: TestAPIRules tries them.
func apiRules() []mutation {
	return []mutation{
		{
			name: "WritesCarryTheResourceVersion",
			rule: "one write of status with the resourceVersion",
			file: "internal/kube/document.go",
			old:  "\tnext.SetResourceVersion(d.GetResourceVersion())\n",
			tags: "apiserver", test: "^TestStoreRefusesWhatIsNotTheNewest$",
		},
		{
			name: "FinalizerWritesCarryBoth",
			rule: "resourceVersion always; everything carries the network's UID",
			file: "internal/kube/store.go",
			old:  "\"uid\": o.UID, \"resourceVersion\": o.ResourceVersion,",
			tags: "apiserver", test: "^TestStoreRefusesWhatIsNotTheNewest$",
		},
		{
			name: "AddressReturnsBeforeTheDanmEpGoes",
			rule: "Release: (1) the address back into the own entry, (2) the DanmEp deleted",
			file: "daemon/internal/danmep/publisher.go",
			old:  "if err := p.coverage.ReturnToEntry(ctx, net, ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr()); err != nil {",
			new:  "if err := p.danmEps.remove(ctx, ep.DeepCopy()); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tif err := p.coverage.ReturnToEntry(ctx, net, ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr()); err != nil {",
			tags: "apiserver", test: "^TestEndpointLivesFromPublishToRelease$",
		},
		{
			name: "FreedAfterTheDanmEpIsGone",
			rule: "Release: (2) the DanmEp deleted, (3) the address is a hold again or freed",
			file: "daemon/internal/danmep/publisher.go",
			old:  "\tif ep != nil {\n",
			new:  "\tif err := p.coverage.Free(ctx, net, ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr()); err != nil {\n\t\treturn err\n\t}\n\tif ep != nil {\n",
			tags: "apiserver", test: "^TestEndpointLivesFromPublishToRelease$",
		},
		{
			name: "LeavesTheEntryAfterItsDanmEp",
			rule: "the address leaves the entry only in a write sent after its DanmEp exists",
			file: "daemon/internal/danmep/publisher.go",
			old:  "\t\tif created[ifc.EndpointName] != \"\" {\n\t\t\tp.coverage",
			new:  "\t\tif true {\n\t\t\tp.coverage",
			tags: "apiserver", test: "^TestEndpointThatCannotBeMade$",
		},
		{
			name: "OnlyTheOwnDanmEpProves",
			rule: "only the owner releases: another endpoint's DanmEp of that name proves nothing",
			file: "daemon/internal/danmep/client.go",
			old:  "case err == nil && (ep.UID == uid || uid == \"\" && ep.Spec.EndpointID == id):",
			new:  "case err == nil:",
			tags: "apiserver", test: "^TestReleaseWithoutEndpoint$",
		},
		{
			name: "FinalizerIsTheNodes",
			rule: "deleting a DanmEp by any other hand is a request, not a release",
			file: "daemon/internal/danmep/danmep.go",
			old:  "\t\t\tFinalizers: []string{v1.NodeFinalizer},\n",
			tags: "apiserver", test: "^TestEndpointLivesFromPublishToRelease$",
		},
		{
			name: "LiveSandboxKeepsItsDanmEp",
			rule: "no address is on two live interfaces: not after a lost journal",
			file: "daemon/internal/danmep/gc.go",
			old:  "if exists, err := g.NetnsExists(ep.Spec.Netns); exists || err != nil {",
			new:  "if exists, err := g.NetnsExists(ep.Spec.Netns); exists && err != nil {",
			tags: "apiserver", test: "^TestOrphansAreRemoved$",
		},
	}
}
