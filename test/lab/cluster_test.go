// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestDescribeExit(t *testing.T) {
	t.Parallel()
	failed := &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}
	cases := map[string]struct {
		reason string
		state  *corev1.ContainerStateTerminated
		log    string
		want   string
	}{
		"Crash": {
			reason: "the runtime's error is above its goroutines",
			state:  failed, log: "Starting\nfatal error: bad symbol table\n\ngoroutine 1 [running]:\nmain.main()\n",
			want: "the last time with exit code 2 (Error): fatal error: bad symbol table",
		},
		"Panic": {
			reason: "a panic is above its goroutines, too",
			state:  failed, log: "panic: no network\n\ngoroutine 1 [running]:\n",
			want: "the last time with exit code 2 (Error): panic: no network",
		},
		"Exit": {
			reason: "a program that ends by itself names its error last",
			state:  failed, log: "Starting\nFailed to start\n\n",
			want: "the last time with exit code 2 (Error): Failed to start",
		},
		"NoLog": {
			reason: "the former log may be gone",
			state:  failed, want: "the last time with exit code 2 (Error)",
		},
		"NoState": {
			reason: "the kubelet forgot the former container",
			want:   "how it ended is not known",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := describeExit(tc.state, tc.log); got != tc.want {
				t.Errorf("got %q, want %q, since %s", got, tc.want, tc.reason)
			}
		})
	}
}
