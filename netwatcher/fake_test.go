// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// fakeNode is a kernel, an API server and Pods in memory. Like the real kernel, it has one link per
// name and identity, and does not change links that Patchbay does not manage.
type fakeNode struct {
	mu      sync.Mutex
	state   State
	nets    []*network.Network
	nodes   []v1.NodeNetwork
	used    map[network.Link]bool
	written []v1.NodeNetworkStatus
	changes []Change
	filter  VXLANFilter
	guarded []string
	reads   int
	err     map[string]error // by the name of the link, or of the method
	events  func(string)
	// slaves are the links that have another link on top.
	slaves map[string]bool
}

func newFakeNode(nets ...*network.Network) *fakeNode {
	return &fakeNode{state: *host(), nets: nets, used: map[network.Link]bool{}, err: map[string]error{}}
}

func (w *fakeNode) reconciler(tb testing.TB) *Reconciler {
	tb.Helper()
	return New(Config{Node: "self", Version: "v1", Kernel: w, Firewall: fakeFirewall{w}, SourceGuard: fakeSourceGuard{w}, KubeClient: w, Pods: w, Log: testLog(tb)})
}

func (w *fakeNode) State(context.Context) (*State, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	s := State{NICs: slices.Clone(w.state.NICs), Links: slices.Clone(w.state.Links)}
	return &s, w.err["State"]
}

func (w *fakeNode) Apply(_ context.Context, c Change) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = append(w.changes, c)
	if err := cmp.Or(w.err[c.Link.Name], w.err[string(c.Op)]); err != nil {
		return err
	}
	i := slices.IndexFunc(w.state.Links, func(f ObservedLink) bool { return f.Name == c.Link.Name })
	if i >= 0 && !w.state.Links[i].Managed {
		return fmt.Errorf("%s is foreign", c.Link.Name)
	}
	switch c.Op {
	case OpSetUp:
		nic, _ := w.state.nic(c.Link.Device)
		nic.Up = true
	case OpCreate:
		if i >= 0 || slices.ContainsFunc(w.state.Links, func(f ObservedLink) bool { return f.Identity == c.Link.Identity }) {
			return fmt.Errorf("%s exists", c.Link.Name)
		}
		f := managed(c.Link)
		f.TagsFiltered = false
		w.state.Links = append(w.state.Links, f)
	case OpDelete:
		if c.OnlyUnfinished {
			if w.state.Links[i].Unfinished {
				w.state.Links = slices.Delete(w.state.Links, i, i+1)
			}
			return nil
		}
		if w.used[c.Link.Identity] {
			panic("a link with Pods on it was deleted")
		}
		if w.slaves[c.Link.Name] {
			panic("a link with slaves on it was deleted")
		}
		w.state.Links = slices.Delete(w.state.Links, i, i+1)
	case OpUpdate:
		was := w.state.Links[i]
		w.state.Links[i] = managed(c.Link)
		w.state.Links[i].Peers, w.state.Links[i].TagsFiltered = was.Peers, was.TagsFiltered
	case OpFilterTags, OpAllowTags:
		if nic, ok := w.state.nic(c.Link.Name); ok {
			nic.TagsFiltered = c.Op == OpFilterTags
		} else {
			w.state.Links[i].TagsFiltered = c.Op == OpFilterTags
		}
	case OpFlushLearned:
		f := &w.state.Links[i]
		f.Learned = slices.DeleteFunc(slices.Clone(f.Learned), contained(c.Drop))
	case OpUpdatePeers:
		f := &w.state.Links[i]
		f.Peers = append(slices.DeleteFunc(slices.Clone(f.Peers), contained(c.Drop)), c.Add...)
	}
	return nil
}

func (w *fakeNode) LinksInUse(context.Context) (map[string]bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.slaves), w.err["Slaves"]
}

// fakeFirewall is the packet filter of a fakeNode.
type fakeFirewall struct{ *fakeNode }

func (w fakeFirewall) Apply(_ context.Context, f VXLANFilter) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.err["Firewall"]; err != nil {
		return false, err
	}
	changed := !w.filter.Equal(&f)
	w.filter = f
	return changed, nil
}

// fakeSourceGuard is the source guard of a fakeNode.
type fakeSourceGuard struct{ *fakeNode }

func (g fakeSourceGuard) Apply(_ context.Context, links []GuardedLink) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.err["Sources"]; err != nil {
		return false, err
	}
	was := g.guarded
	g.guarded = nil
	for _, l := range links {
		if !l.OnlyIfGuarded || slices.Contains(was, l.Name) {
			g.guarded = append(g.guarded, l.Name)
		}
	}
	return !slices.Equal(was, g.guarded), nil
}

func contained[T comparable](in []T) func(T) bool {
	return func(v T) bool { return slices.Contains(in, v) }
}

func (w *fakeNode) Watch(ctx context.Context, changed func(string)) error {
	w.mu.Lock()
	w.events = changed
	w.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (w *fakeNode) Networks(context.Context) ([]*network.Network, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.nets), w.err["Networks"]
}

func (w *fakeNode) NodeNetworks(context.Context) ([]v1.NodeNetwork, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	nodes := slices.Clone(w.nodes)
	if len(w.written) > 0 {
		nodes = append(nodes, node("self"))
	}
	return nodes, w.err["NodeNetworks"]
}

func (w *fakeNode) WriteStatus(_ context.Context, s v1.NodeNetworkStatus) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.err["WriteStatus"]; err != nil {
		return err
	}
	w.written = append(w.written, s)
	return nil
}

func (w *fakeNode) Links() (map[network.Link]bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	used := map[network.Link]bool{}
	for id := range w.used {
		used[id] = true
	}
	return used, w.err["Links"]
}

// change changes the fakeNode with its lock held.
func (w *fakeNode) change(f func(*fakeNode)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w)
}

func (w *fakeNode) links() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for _, f := range w.state.Links {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return names
}

func (w *fakeNode) changeCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.changes)
}
