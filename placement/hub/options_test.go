// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each message names the flag, the value and the rule. Nothing is started before the flags are checked.
func TestWrongFlags(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	bin := programs(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(bin, "etcd")
	cases := map[string]struct {
		reason string
		args   []string
		want   []string
	}{
		"Rest":       {reason: "`up` is the only argument", args: []string{"down"}, want: []string{"must be none", "`up`", `"down"`}},
		"Unknown":    {reason: "an unknown flag is not ignored", args: []string{"--nope"}, want: []string{"--nope"}},
		"Workers":    {reason: "at least one worker is needed", args: []string{"--workers=0"}, want: []string{"--workers", "got 0", "1 to 1000"}},
		"Namespace":  {reason: "the Lease needs a namespace", args: []string{"--namespace="}, want: []string{"--namespace", "give"}},
		"DebugHost":  {reason: "a host without an API is a mistake", args: []string{"--debug-host=hub"}, want: []string{"--debug-host", "--debug-address"}},
		"DebugName":  {reason: "a Service cannot have the name", args: []string{"--debug-address=:0", "--debug-host=a_b:1"}, want: []string{"--debug-host", `"a_b:1"`, "DNS name"}},
		"DebugPort":  {reason: "ports end at 65535", args: []string{"--debug-address=:0", "--debug-host=hub:70000"}, want: []string{"--debug-host", "1 to 65535"}},
		"Kubeconfig": {reason: "the message names the file", args: []string{"--kubeconfig=/nowhere"}, want: []string{"--kubeconfig", "/nowhere", "patchbay-hub up"}},
		"NoPod":      {reason: "there is no default outside of Pods", args: nil, want: []string{"--kubeconfig", "patchbay-hub up"}},
		"UpRest":     {reason: "`up` takes no arguments", args: []string{"up", "now"}, want: []string{"must be none"}},
		"BinDir": {
			reason: "the message names the missing program and where it was searched",
			args:   []string{"up", "--bin-dir=/nowhere"}, want: []string{"--bin-dir", "etcd", `"/nowhere"`, "PATH", "bin/kubernetes"},
		},
		"Address":     {reason: "agents need an IP address", args: []string{"up", "--address=hub"}, want: []string{"--address", `"hub"`, "IP address"}},
		"Unspecified": {reason: "agents cannot connect to 0.0.0.0", args: []string{"up", "--address=0.0.0.0"}, want: []string{"--address", "agents dial"}},
		"Listen":      {reason: "the API server cannot listen on a name", args: []string{"up", "--listen=hub"}, want: []string{"--listen", `"hub"`, "0.0.0.0"}},
		"Foreign": {
			reason: "an address of another machine is rejected",
			args:   []string{"up", "--bin-dir=" + bin, "--data-dir=" + t.TempDir(), "--address=192.0.2.1"}, want: []string{"--listen", "192.0.2.1", "this machine"},
		},
		"Port": {reason: "ports end at 65535", args: []string{"up", "--bin-dir=" + bin, "--port=70000"}, want: []string{"--port", "70000", "1 to 65535"}},
		"Taken": {
			reason: "another program uses the port",
			args:   []string{"up", "--bin-dir=" + bin, "--data-dir=" + t.TempDir(), "--port=" + port}, want: []string{"--port", port, "free port"},
		},
		"Folder": {
			reason: "a folder cannot be created below a file",
			args:   []string{"up", "--bin-dir=" + bin, "--data-dir=" + file + "/hub"}, want: []string{"--data-dir", file, "can be written"},
		},
		"Cluster": {reason: "the cluster's namespace has the cluster's name in its name", args: []string{"up", "--bin-dir=" + bin, "--cluster=East"}, want: []string{"--cluster", `"East"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := Run(t.Context(), tc.args, &out, &out)
			if err == nil {
				t.Fatalf("%s: got no error", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %q is not in %q", tc.reason, want, err)
				}
			}
		})
	}
}

// --help and --version need no hub.
func TestAnswers(t *testing.T) {
	t.Setenv("PATH", "")
	for text, args := range map[string][]string{
		"--kubeconfig": {"--help"},
		"--bin-dir":    {"up", "--help"},
		"devel":        {"--version"},
		"deve":         {"up", "--version"},
	} {
		var out bytes.Buffer
		if err := Run(t.Context(), args, &out, &out); err != nil || !strings.Contains(out.String(), text) {
			t.Errorf("%v: got %q, %v", args, out.String(), err)
		}
	}
}

// programs returns a folder of programs that fail when they are run.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/false\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
