// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/test/lab/vm/vmtest"
)

func TestArgs(t *testing.T) {
	t.Parallel()
	kernel := Kernel{Program: "/bin/linux", Options: []string{"seccomp=on"}}
	vmtest.CheckArgs(t, kernel.args, map[string]vmtest.ArgsCase{
		"Plain": {
			Reason: "The root is read-only, and the guest's folder is on the command line.",
			Config: vmtest.Plain("/run/x"),
			Has:    []string{"ro", "rootfstype=hostfs", "guest=/run/x", "uml_dir=/run/x/", "mem=512M", "panic=-1", "init=/run/x/init", "seccomp=on"},
			HasNot: []string{"ssl0=", "ubd0=", "vec0:"},
		},
		"Full": {
			Reason: "Devices are numbered in the order given.",
			Config: vmtest.Full("/run/x"),
			Has: []string{
				"ssl0=null,fd:3", "ubd0=/var/a", "ubd1=/var/b",
				"vec0:transport=tap,ifname=t0,depth=64,gro=1,mac=02:00:00:00:00:01",
			},
		},
	})
	args := kernel.args(vmtest.Plain("/run/x"))
	if tail := args[len(args)-3:]; !cmp.Equal(tail, []string{"--", "guest", "/run/x/guest.json"}) {
		t.Errorf("the last arguments are init's: got %q", tail)
	}
}
