// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
)

// Attach makes the slave in the Pod's namespace and configures it. On error
// nothing is left. A link of that name that carries our mark is one that an
// earlier attempt left behind: it is replaced.
func (k *Kernel) Attach(ctx context.Context, s *Slave) (Outcome, error) {
	out, err := k.attach(ctx, s)
	if err != nil {
		return Outcome{}, fmt.Errorf("attach %s %s on %s: %w", s.Kind, s.Name, s.Parent, err)
	}
	return out, nil
}

func (k *Kernel) attach(ctx context.Context, s *Slave) (out Outcome, err error) {
	if err := errors.Join(s.check(), ctx.Err()); err != nil {
		return Outcome{}, err
	}
	err = inPod(s.Netns, func(pod *pod) error {
		name, err := k.create(pod, s, &out)
		if err != nil {
			return err
		}
		if err := pod.configure(ctx, s, name, out.Index); err != nil {
			return errors.Join(err, pod.remove(s, out.Index))
		}
		return nil
	})
	return out, err
}

// Detach removes the slave. A link or a namespace that is gone is no error. A
// link of that name which is not a slave of the right kind on a link of another
// namespace was not made here, and stays.
func (k *Kernel) Detach(_ context.Context, s *Slave) error {
	if s.Netns == "" {
		return nil // the runtime says so when the namespace is gone
	}
	err := inPod(s.Netns, func(pod *pod) error { return pod.detach(s) })
	if err != nil && !errors.Is(err, ErrNamespaceGone) {
		return fmt.Errorf("detach %s %s: %w", s.Kind, s.Name, err)
	}
	return nil
}

func (p *pod) detach(s *Slave) error {
	link, err := p.linkByName(s.Name)
	if errors.Is(err, errNoLink) {
		link, err = p.linkByName(temporaryName(s.Name))
	}
	switch {
	case errors.Is(err, errNoLink):
		return p.deleteRules(s)
	case err != nil:
		return err
	case link.Type() != s.Kind || link.Attrs().NetNsID < 0:
		return nil
	}
	return p.remove(s, link.Attrs().Index)
}

// remove takes away the link and what the kernel does not remove with it.
func (p *pod) remove(s *Slave, index int) error {
	if err := p.deleteLink(index); err != nil {
		return fmt.Errorf("delete link %s: %w", s.Name, err)
	}
	return p.deleteRules(s)
}
