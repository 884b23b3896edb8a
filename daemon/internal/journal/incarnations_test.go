// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// networkKey returns the key of a network whose UID is its name.
func networkKey(name string) network.Key {
	return network.Key{Ref: network.Ref{Kind: "DanmNet", Namespace: "ns", Name: name}, UID: name}
}

// openAt opens a journal. The test closes it.
func openAt(t *testing.T, path string) *Journal {
	t.Helper()
	j, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// In any order of writes, the sequence numbers have the content of a map, also after the journal was
// opened again. They belong to one Node UID at a time.
func TestSeqsAreAMapOfOneNode(t *testing.T) {
	t.Parallel()
	dir, run := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		path := filepath.Join(dir, fmt.Sprint(run))
		j := openAt(t, path)
		defer func() { _ = j.Close() }()
		model := map[string]map[network.Key]int64{}
		uid := rapid.SampledFrom([]string{"n1", "n2"})
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				for _, node := range []string{"n1", "n2"} {
					want := model[node]
					if want == nil {
						want = map[network.Key]int64{}
					}
					got, err := j.Seqs(node)
					if diff := cmp.Diff(want, got); diff != "" || err != nil {
						rt.Fatalf("seqs of %s: error %v (-want +got):\n%s", node, err, diff)
					}
				}
			},
			"put": func(rt *rapid.T) {
				node, key := uid.Draw(rt, "node"), networkKey(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "net"))
				seq := rapid.Int64Range(0, 3).Draw(rt, "seq")
				if err := j.PutSeq(node, key, seq); err != nil {
					rt.Fatal(err)
				}
				if seq == 0 && model[node][key] == 0 {
					return // no write, so that nothing is deleted
				}
				if model[node] == nil {
					model = map[string]map[network.Key]int64{node: {}}
				}
				model = map[string]map[network.Key]int64{node: model[node]}
				if model[node][key] = seq; seq == 0 {
					delete(model[node], key)
				}
			},
			"reopen": func(rt *rapid.T) {
				if err := j.Close(); err != nil {
					rt.Fatal(err)
				}
				j = openAt(t, path)
			},
		})
	})
}

// Sequence numbers that are put during a commit share the next one.
func TestSeqsShareCommits(t *testing.T) {
	t.Parallel()
	j := openAt(t, filepath.Join(t.TempDir(), "j"))
	defer func() { _ = j.Close() }()
	const n = 64
	before := commits(t, j)
	<-j.commit.token // like a running commit
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := j.PutSeq("node", networkKey(fmt.Sprint(i)), int64(i+1)); err != nil {
				t.Error(err)
			}
		})
	}
	awaitQueued(j.commit, n)
	j.commit.token <- struct{}{}
	wg.Wait()
	if got := commits(t, j) - before; got != 1 {
		t.Errorf("%d sequence numbers: got %d commits, want 1", n, got)
	}
	if got, err := j.Seqs("node"); err != nil || len(got) != n {
		t.Errorf("got %d sequence numbers and error %v, want %d", len(got), err, n)
	}
}

// Putting an unchanged sequence number costs no write, because it happens before each claim.
func TestSameSeqCostsNoCommit(t *testing.T) {
	t.Parallel()
	j := openAt(t, filepath.Join(t.TempDir(), "j"))
	defer func() { _ = j.Close() }()
	if err := j.PutSeq("node", networkKey("a"), 7); err != nil {
		t.Fatal(err)
	}
	before := commits(t, j)
	if err := errors.Join(j.PutSeq("node", networkKey("a"), 7), j.PutSeq("node", networkKey("b"), 0)); err != nil {
		t.Fatal(err)
	}
	if got := commits(t, j) - before; got != 0 {
		t.Errorf("unchanged sequence numbers: got %d commits, want none", got)
	}
}

// A corrupt sequence number is reported with its network, and the others are readable.
func TestCorruptSeq(t *testing.T) {
	t.Parallel()
	k, err := seqKey("node", networkKey("a"))
	if err != nil {
		t.Fatal(err)
	}
	good := encodeSeq(k, 7)
	other, _ := seqKey("node", networkKey("other"))
	cases := map[string]struct {
		reason string
		value  []byte
	}{
		"Empty":   {"The value is empty.", []byte{}},
		"Short":   {"A byte is missing.", good[:len(good)-1]},
		"Flipped": {"A smaller number would hide a rollback.", append(bytes.Clone(good[:len(good)-1]), 6)},
		"Moved":   {"The value belongs to another network.", encodeSeq(other, 7)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := openAt(t, filepath.Join(t.TempDir(), "j"))
			defer func() { _ = j.Close() }()
			if err := errors.Join(j.PutSeq("node", networkKey("a"), 7), j.PutSeq("node", networkKey("b"), 8)); err != nil {
				t.Fatal(err)
			}
			err := j.db.Update(func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte(bucketSeqs)).Bucket([]byte("node")).Put(k, tc.value)
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := j.Seqs("node")
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "DanmNet/ns/a/a") {
				t.Errorf("%s: got error %v, want ErrCorrupt that names DanmNet/ns/a/a", tc.reason, err)
			}
			if diff := cmp.Diff(map[network.Key]int64{networkKey("b"): 8}, got); diff != "" {
				t.Errorf("%s: other sequence numbers (-want +got):\n%s", tc.reason, diff)
			}
			if err := j.PutSeq("node", networkKey("a"), 9); err != nil {
				t.Errorf("%s: PutSeq over the corrupt value: %v", tc.reason, err)
			}
		})
	}
}

// PutSeq rejects an invalid key.
func TestSeqKeysAreChecked(t *testing.T) {
	t.Parallel()
	j := openAt(t, filepath.Join(t.TempDir(), "j"))
	defer func() { _ = j.Close() }()
	cases := map[string]struct {
		reason, node string
		key          network.Key
	}{
		"NoNode":    {"A number belongs to one Node UID.", "", networkKey("a")},
		"NoUID":     {"A number belongs to one UID of the network.", "node", network.Key{Ref: networkKey("a").Ref}},
		"Separator": {"NUL would make it the key of another network.", "node", networkKey("a\x00b")},
		"Long":      {"bbolt would fail the commit of all changes.", "node", networkKey(strings.Repeat("a", 1024))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := j.PutSeq(tc.node, tc.key, 1); err == nil {
				t.Errorf("%s: got no error, want one", tc.reason)
			}
		})
	}
}
