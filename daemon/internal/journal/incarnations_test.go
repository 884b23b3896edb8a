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
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// net is the key of a network; its name is its UID, too.
func net(name string) claims.Key {
	return claims.Key{Ref: network.Ref{Kind: "DanmNet", Namespace: "ns", Name: name}, UID: name}
}

// openAt opens a journal that the test closes.
func openAt(t *testing.T, path string) *Journal {
	t.Helper()
	j, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// Whatever the order of writes, the seqs are what a map would hold, also after the
// journal was opened again, and only one Node UID's at a time.
func TestSeqsAreAMapOfOneNode(t *testing.T) {
	t.Parallel()
	dir, run := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		path := filepath.Join(dir, fmt.Sprint(run))
		j := openAt(t, path)
		defer func() { _ = j.Close() }()
		model := map[string]map[claims.Key]int64{}
		uid := rapid.SampledFrom([]string{"n1", "n2"})
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				for _, node := range []string{"n1", "n2"} {
					want := model[node]
					if want == nil {
						want = map[claims.Key]int64{}
					}
					got, err := j.Seqs(node)
					if diff := cmp.Diff(want, got); diff != "" || err != nil {
						rt.Fatalf("seqs of %s: error %v (-want +got):\n%s", node, err, diff)
					}
				}
			},
			"remember": func(rt *rapid.T) {
				node, key := uid.Draw(rt, "node"), net(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "net"))
				seq := rapid.Int64Range(0, 3).Draw(rt, "seq")
				if err := j.PutSeq(node, key, seq); err != nil {
					rt.Fatal(err)
				}
				if seq == 0 && model[node][key] == 0 {
					return // nothing to write, so nothing is dropped either
				}
				if model[node] == nil {
					model = map[string]map[claims.Key]int64{node: {}}
				}
				model = map[string]map[claims.Key]int64{node: model[node]}
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

// Seqs that are noted while a commit runs share the next one, with records, too.
func TestSeqsShareCommits(t *testing.T) {
	t.Parallel()
	j := openAt(t, filepath.Join(t.TempDir(), "j"))
	defer func() { _ = j.Close() }()
	const n = 64
	before := commits(t, j)
	<-j.commit.token // as a commit that runs
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := j.PutSeq("node", net(fmt.Sprint(i)), int64(i+1)); err != nil {
				t.Error(err)
			}
		})
	}
	waiting(j.commit, n)
	j.commit.token <- struct{}{}
	wg.Wait()
	if got := commits(t, j) - before; got != 1 {
		t.Errorf("%d seqs took %d commits, want 1", n, got)
	}
	if got, err := j.Seqs("node"); err != nil || len(got) != n {
		t.Errorf("%d seqs, %v, want %d", len(got), err, n)
	}
}

// A seq that is known costs no write: it is noted before each claim.
func TestSameSeqCostsNoCommit(t *testing.T) {
	t.Parallel()
	j := openAt(t, filepath.Join(t.TempDir(), "j"))
	defer func() { _ = j.Close() }()
	if err := j.PutSeq("node", net("a"), 7); err != nil {
		t.Fatal(err)
	}
	before := commits(t, j)
	if err := errors.Join(j.PutSeq("node", net("a"), 7), j.PutSeq("node", net("b"), 0)); err != nil {
		t.Fatal(err)
	}
	if got := commits(t, j) - before; got != 0 {
		t.Errorf("%d commits for what was known, want none", got)
	}
}

func TestDamagedSeq(t *testing.T) {
	t.Parallel()
	k, err := seqKey("node", net("a"))
	if err != nil {
		t.Fatal(err)
	}
	good := encodeSeq(k, 7)
	other, _ := seqKey("node", net("other"))
	cases := map[string]struct {
		reason string
		value  []byte
	}{
		"Empty":   {"nothing is left", []byte{}},
		"Short":   {"a byte is missing", good[:len(good)-1]},
		"Flipped": {"a smaller seq would hide an older state", append(bytes.Clone(good[:len(good)-1]), 6)},
		"Moved":   {"another network's seq under this key", encodeSeq(other, 7)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := openAt(t, filepath.Join(t.TempDir(), "j"))
			defer func() { _ = j.Close() }()
			if err := errors.Join(j.PutSeq("node", net("a"), 7), j.PutSeq("node", net("b"), 8)); err != nil {
				t.Fatal(err)
			}
			err := j.db.Update(func(tx *bbolt.Tx) error {
				return tx.Bucket(bucketSeqs).Bucket([]byte("node")).Put(k, tc.value)
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := j.Seqs("node")
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "DanmNet/ns/a/a") {
				t.Errorf("%s: got error %v, want ErrCorrupt that names DanmNet/ns/a/a", tc.reason, err)
			}
			if diff := cmp.Diff(map[claims.Key]int64{net("b"): 8}, got); diff != "" {
				t.Errorf("%s: the others (-want +got):\n%s", tc.reason, diff)
			}
			if err := j.PutSeq("node", net("a"), 9); err != nil {
				t.Errorf("%s: a damaged seq must be replaceable: %v", tc.reason, err)
			}
		})
	}
}

func TestSeqKeysAreChecked(t *testing.T) {
	t.Parallel()
	j := openAt(t, filepath.Join(t.TempDir(), "j"))
	defer func() { _ = j.Close() }()
	cases := map[string]struct {
		reason, node string
		key          claims.Key
	}{
		"NoNode":    {"a seq is of one life of the Node", "", net("a")},
		"NoUID":     {"and of one life of the network", "node", claims.Key{Ref: net("a").Ref}},
		"Separator": {"a NUL would make it another network's", "node", net("a\x00b")},
		"Long":      {"it would fail the commit of others", "node", net(strings.Repeat("a", 1024))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := j.PutSeq(tc.node, tc.key, 1); err == nil {
				t.Errorf("%s: got no error", tc.reason)
			}
		})
	}
}
