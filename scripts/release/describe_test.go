// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// commit makes a repository of dir with one commit of a fixed time.
func commit(t *testing.T, dir string) {
	t.Helper()
	for _, args := range [][]string{
		{"init", "--quiet"}, {"config", "core.autocrlf", "false"}, {"add", "--all"}, {"commit", "--quiet", "--allow-empty", "--message", "source"},
	} {
		runGit(t, dir, args...)
	}
}

func runGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(
		os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com", "GIT_AUTHOR_DATE=1700000001 +0000",
		"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com", "GIT_COMMITTER_DATE=1700000001 +0000",
	)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%s", args[0], err, out)
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		tag     string
		changed bool
		o       options
		epoch   string
		want    release
		err     string
	}{
		"Tag": {
			reason: "the tag of the commit is the version", tag: "v0.1.0", o: options{registry: "registry.example/patchbay/"},
			want: release{Version: "v0.1.0", Time: time.Unix(1_700_000_001, 0).UTC(), Registry: "registry.example/patchbay", BaseURL: homepage + "/releases/download/v0.1.0"},
		},
		"Explicit": {
			reason: "flags and SOURCE_DATE_EPOCH come before the commit", tag: "v0.1.0", epoch: "5",
			o:    options{version: "v0.2.0-rc.1", registry: "a", baseURL: "https://files.example/"},
			want: release{Version: "v0.2.0-rc.1", Time: time.Unix(5, 0).UTC(), Registry: "a", BaseURL: "https://files.example"},
		},
		"Dirty": {
			reason: "a test may build what is not committed", changed: true, o: options{version: "v0.1.0", registry: "a", allowDirty: true},
			want: release{Version: "v0.1.0", Time: time.Unix(1_700_000_001, 0).UTC(), Registry: "a", BaseURL: homepage + "/releases/download/v0.1.0"},
		},
		"NoTag":       {reason: "without a tag, the version is unknown", o: options{registry: "a"}, err: "the commit must have a tag such as v0.1.0"},
		"NotSemantic": {reason: "krew accepts semantic versions only", tag: "v1", o: options{registry: "a"}, err: `version "v1" must be a semantic version`},
		"Metadata":    {reason: "an image's tag has no +", o: options{version: "v0.1.0+1", registry: "a"}, err: "must be a semantic version"},
		"Changed":     {reason: "nobody could build a release of changed files again", changed: true, o: options{version: "v0.1.0", registry: "a"}, err: "?? new"},
		"NoRegistry":  {reason: "an image has a full name", o: options{version: "v0.1.0"}, err: "flag --registry: must be"},
		"HTTP":        {reason: "krew downloads by https", o: options{version: "v0.1.0", registry: "a", baseURL: "http://files.example"}, err: "flag --base-url: must begin with https://"},
		"Epoch":       {reason: "a wrong time would be in all files", o: options{version: "v0.1.0", registry: "a"}, epoch: "now", err: `SOURCE_DATE_EPOCH must be a number of seconds, got "now"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			commit(t, dir)
			if tc.tag != "" {
				runGit(t, dir, "tag", tc.tag)
			}
			if tc.changed {
				if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := describe(dir, tc.o, tc.epoch)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Commit) != 40 {
				t.Errorf("%s: commit %q", tc.reason, got.Commit)
			}
			tc.want.Source, tc.want.Commit = dir, got.Commit
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
