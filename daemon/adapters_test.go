// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"testing"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// answers is a journal that answers all with one error.
type answers struct {
	attach.Journal
	err error
}

func (a answers) Put(*attach.Record) error    { return a.err }
func (a answers) Delete(string, string) error { return a.err }

// netwatcher hears when a record no longer holds a link, and not before.
func TestLinkJournal(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	put := func(s attach.State) func(attach.Journal) error {
		return func(j attach.Journal) error { return j.Put(&attach.Record{State: s}) }
	}
	cases := map[string]struct {
		reason string
		do     func(attach.Journal) error
		err    error
		want   bool
	}{
		"Attaching":    {reason: "the Pod wants the link", do: put(attach.Attaching)},
		"Released":     {reason: "the Pod has left", do: put(attach.Released), want: true},
		"NotJournaled": {reason: "the record still holds the link", do: put(attach.Released), err: full},
		"RolledBack":   {reason: "the Pod never came", do: func(j attach.Journal) error { return j.Delete("c", "eth0") }, want: true},
		"NotDeleted":   {reason: "the record still holds the link", do: func(j attach.Journal) error { return j.Delete("c", "eth0") }, err: full},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := false
			err := tc.do(linkJournal{answers{err: tc.err}, func() { told = true }})
			if told != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s: told %v, %v; want %v, %v", tc.reason, told, err, tc.want, tc.err)
			}
		})
	}
}
