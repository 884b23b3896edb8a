// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"sync"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// linkCache has the links that a Pod may use at once, as the last reconciliation left them.
// Link events invalidate its entries. It is safe for concurrent use.
type linkCache struct {
	mu     sync.Mutex // guards what follows
	latest cachedLinks
	// changed are the links that changed since startRecording; nil while nothing is recorded.
	changed map[string]bool
}

// cachedLinks are the outcome of one reconciliation.
type cachedLinks struct {
	// ready are the names of finished links that are up and sealed. It includes links whose
	// change is deferred until they are unused: a workload whose Pods are replaced one by one
	// would not progress if the new Pods had to wait for the last old one.
	ready map[network.Link]string
	// linkByNetwork are the networks that may use their link.
	linkByNetwork map[network.Ref]network.Link
	// refused are the networks that may not, with the reason.
	refused map[network.Ref]error
	// watched are the names whose changes matter: links, NICs, and missing NICs that a network
	// requires.
	watched map[string]bool
}

// startRecording starts to record the links that change. Call it before the links are read.
func (c *linkCache) startRecording() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = map[string]bool{}
}

// invalidate takes in that a link changed, or may have, if name is empty. It reports whether the
// change matters. Links that do not matter, such as the veths of Pods, cost nothing.
func (c *linkCache) invalidate(name string) (matters bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		c.changed[name] = true
	}
	return c.latest.invalidate(name)
}

// publish replaces the cache with the outcome of a reconciliation, without the links that changed
// since startRecording. It returns the networks that are refused for a new reason, and whether
// a change that matters was missed.
func (c *linkCache) publish(s *scope) (refused map[network.Ref]error, missed bool) {
	next := newCachedLinks(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	refused = map[network.Ref]error{}
	for ref, err := range next.refused {
		if old := c.latest.refused[ref]; old == nil || old.Error() != err.Error() {
			refused[ref] = err
		}
	}
	for name := range c.changed {
		missed = next.invalidate(name) || missed // the cache before may not have watched it
	}
	c.latest, c.changed = next, nil
	return refused, missed
}

// lookup returns the link's name if the network may use it at once.
func (c *linkCache) lookup(id network.Link, ref network.Ref) (name string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if allowed, ok := c.latest.linkByNetwork[ref]; !ok || allowed != id {
		return "", false // a new, changed or refused network
	}
	name, ok = c.latest.ready[id]
	return name, ok
}

// add adds a link that is ready for the network. Before the first publish it does nothing.
func (c *linkCache) add(id network.Link, ref network.Ref, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.latest.ready != nil {
		c.latest.ready[id], c.latest.linkByNetwork[ref] = name, id
	}
}

// drop removes a link that is about to be deleted.
func (c *linkCache) drop(id network.Link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.latest.ready, id)
}

// newCachedLinks computes the cache from the scope of a reconciliation.
func newCachedLinks(s *scope) cachedLinks {
	c := cachedLinks{
		ready: map[network.Link]string{}, linkByNetwork: s.linkByNetwork(),
		refused: s.plan.Refused, watched: map[string]bool{},
	}
	for _, name := range s.plan.RequiredNICs {
		c.watched[name] = true
		c.ready[network.Link{Device: name}] = name
	}
	for i := range s.plan.Links {
		w := &s.plan.Links[i]
		c.watched[w.Name], c.watched[w.Device] = true, true
		if f := s.state.link(w.Identity); f != nil && w.Err == nil && f.Up && f.HostUnreachable {
			c.ready[w.Identity] = f.Name
			c.watched[f.Name] = true
		}
	}
	for i := range s.state.NICs {
		if s.state.NICs[i].isReported() {
			c.watched[s.state.NICs[i].Name] = true
		}
	}
	return c
}

// invalidate removes the links that a change of the named link concerns, all for an empty name. It
// reports whether the change matters.
func (c *cachedLinks) invalidate(name string) bool {
	if name != "" && c.watched != nil && !c.watched[name] {
		return false
	}
	for id, link := range c.ready {
		if name == "" || link == name || id.Device == name {
			delete(c.ready, id)
		}
	}
	return true
}
