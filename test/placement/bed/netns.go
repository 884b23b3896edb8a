// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"fmt"
	"net"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/netns"
)

// IsolatedNetns is a network namespace without any link: nothing can be dialled in it, and what
// runs there reaches only what listens there.
type IsolatedNetns struct{ name string }

// NewIsolatedNetns makes one. It needs root.
func NewIsolatedNetns() (*IsolatedNetns, error) {
	i := &IsolatedNetns{name: apitest.Name("pb-island")}
	if err := netns.Add(i.name); err != nil {
		return nil, err
	}
	return i, nil
}

// Listen opens a port for who is on the island; it is served from outside.
func (i *IsolatedNetns) Listen() (net.Listener, error) {
	var l net.Listener
	err := netns.Do(i.name, func() error {
		var err error
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open port in namespace %s: %w", i.name, err)
	}
	return l, nil
}

// execPrefix is the command that runs what follows on the island.
func (i *IsolatedNetns) execPrefix() []string {
	return []string{"nsenter", "--net=" + netns.Path(i.name), "--"}
}

// Close removes it.
func (i *IsolatedNetns) Close() error { return netns.Delete(i.name) }
