// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The benchmark starts itself in a network namespace: here that is the test.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, innerFlag) {
		main()
		return
	}
	os.Exit(m.Run())
}

// The benchmark itself, small: the programs come to rest and are measured.
func TestSmall(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	args := []string{"--nodes=3", "--networks=2", "--pods=2", "--runs=1", "--settle=3s", "--idle=4s"}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		"patchbayd requested: ", "patchbay-controller requested: ", "patchbay-operator requested: ", " update leases",
		"2 clusternetworks in etcd", "6 danmeps in etcd", "3 nodenetworks in etcd", "the one that the daemon has written: ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report must have %q:\n%s", want, out.String())
		}
	}
	t.Log(out.String())
}
