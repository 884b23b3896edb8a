// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
)

// write writes a plan, if there is something to write. What the journal has of the
// entry's seq is never more than what the object has: it forgets before the entry
// goes, and learns after the entry has come.
func (d *desk) write(ctx context.Context, obj *Object, p *plan) error {
	if !p.changed {
		d.note(p, obj)
		return d.remember(p.entry)
	}
	if !p.entry.present {
		if err := d.remember(p.entry); err != nil {
			return err
		}
	}
	written, err := ask(ctx, d.a, func(ctx context.Context) (*Object, error) {
		return d.a.store.Update(ctx, p.next)
	})
	if err != nil {
		return err
	}
	d.note(p, written)
	return d.remember(p.entry)
}

// note takes the object's version as the newest. That of a recovery begins anew, once
// the recovery is written.
func (d *desk) note(p *plan, obj *Object) {
	if p.reassert {
		d.a.versions.restart(d.key, obj.ResourceVersion, d.newest)
		return
	}
	d.a.versions.saw(d.key, obj.ResourceVersion)
}

// remember journals the seq of an entry, or that there is none.
func (d *desk) remember(e entry) error {
	seq := e.seq
	if !e.present {
		seq = 0
	}
	d.mu.Lock()
	known := d.book.remembered
	d.mu.Unlock()
	if seq == known {
		return nil
	}
	if err := d.a.cfg.Remember(d.key, seq); err != nil {
		return fmt.Errorf("journal seq %d of the entry: %w", seq, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.book.remembered = seq
	return nil
}
