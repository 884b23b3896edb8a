// SPDX-License-Identifier: Apache-2.0

//go:build rules

package rules

// daemonRules are what the daemon does around its claims.
func daemonRules() []mutation {
	return []mutation{
		{
			name: "JournalFirst",
			rule: "Use: journal, then the interface, then the DanmEp",
			file: "daemon/internal/attach/service.go",
			old:  "if err := s.journal.Put(rec); err != nil {\n\t\treturn nil, errors.Join(fmt.Errorf(\"journal sandbox %s: %w\", req.ContainerID, err), s.discardRecord(rec))",
			new:  "if err := error(nil); err != nil {\n\t\treturn nil, errors.Join(fmt.Errorf(\"journal sandbox %s: %w\", req.ContainerID, err), s.discardRecord(rec))",
			test: "^TestAddJournalsFirst$",
		},
		{
			name: "InterfacesGoFirst",
			rule: "Release: only when the interface is gone",
			file: "daemon/internal/attach/service.go",
			old:  "\t\trec.State = Detaching\n",
			new:  "\t\trec.State = Released\n\t\ts.publisher.Release(rec)\n",
			test: "^TestDelIsRepeated$",
		},
		{
			name: "EndIsJournalledFirst",
			rule: "a release is journalled before it begins",
			file: "daemon/internal/attach/service.go",
			old:  "\trec.State = Released\n\tif err := s.journal.Put(rec); err != nil {",
			new:  "\trec.State = Released\n\tif err := error(nil); err != nil {",
			test: "^(TestKilledInDel|TestDelIsRepeated)$",
		},
		{
			name: "PublishedOnlyWithADanmEp",
			rule: "the address leaves the entry only in a write sent after its DanmEp exists, also by the journal",
			file: "daemon/internal/addresses/allocator.go",
			old:  "case endpointUID != \"\":",
			new:  "case state == attach.Attached:",
			test: "^TestUsesTellHowFarEachInterfaceCame$",
		},
		{
			name: "JournalIsLocked",
			rule: "the daemon takes an exclusive lock on its journal",
			file: "daemon/internal/journal/journal.go",
			old:  "db, err := bbolt.Open(path,",
			new:  "if fresh, err := os.ReadFile(path); err == nil { // a file of its own has no lock\n\t\t_ = errors.Join(os.Remove(path), os.WriteFile(path, fresh, 0o600))\n\t}\n\tdb, err := bbolt.Open(path,",
			test: "^TestLock$",
		},
		{
			name: "LivesAreCounted",
			rule: "seq is raised by each life of a node's daemon",
			file: "daemon/internal/journal/incarnations.go",
			old:  "\t\t\tincarnation++\n",
			test: "^TestLivesAreCountedAcrossStarts$",
		},
		{
			name: "RecordBeforeAddresses",
			rule: "only the owner releases: a record goes before its addresses",
			file: "daemon/internal/attach/service.go",
			old:  "func (s *Service) discardRecord(rec *Record) error {\n",
			new:  "func (s *Service) discardRecord(rec *Record) error {\n\tfor i := range slices.Backward(rec.Interfaces) {\n\t\ts.addresses.discard(&rec.Interfaces[i])\n\t}\n",
			test: "^TestDelAfterFailedRollBackFreesNobodyElse$",
		},
		{
			name: "ProbeComesFirst",
			rule: "on a network that probes, no address is on an interface before the network was asked for it",
			file: "daemon/internal/attach/addressclaimer.go",
			old:  "\tif err == nil {\n\t\terr = c.probe(", new: "\tif false {\n\t\terr = c.probe(",
			test: "^(TestProbe|TestProbeComesFirst)$",
		},
		{
			name: "QuarantineIsBounded",
			rule: "what another machine has stays in the entry of the node that found it, within bounds",
			file: allocatorDir + "network.go",
			old:  "if *room <= 0 {", new: "if false {",
			test: "^TestQuarantineIsBounded$",
		},
	}
}
