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
	const registry = "registry.example/patchbay"
	cases := map[string]struct {
		reason  string
		tags    []string
		changed bool
		o       options
		epoch   string
		want    release
		err     string
	}{
		"Tag": {
			reason: "the tag of the commit is the version", tags: []string{"v0.1.0"}, o: options{registry: registry + "/"},
			want: release{Version: "v0.1.0", Time: time.Unix(1_700_000_001, 0).UTC(), Registry: registry, BaseURL: homepage + "/releases/download/v0.1.0"},
		},
		"OtherTags": {
			reason: "only one of the tags is a version", tags: []string{"latest", "v0.1.0", "v0", "nightly"}, o: options{registry: "registry.example:5000"},
			want: release{Version: "v0.1.0", Time: time.Unix(1_700_000_001, 0).UTC(), Registry: "registry.example:5000", BaseURL: homepage + "/releases/download/v0.1.0"},
		},
		"Explicit": {
			reason: "flags and SOURCE_DATE_EPOCH come before the commit", tags: []string{"v0.1.0", "v0.2.0"}, epoch: "5",
			o:    options{version: "v0.2.0-rc.1", registry: "localhost", baseURL: "https://files.example/"},
			want: release{Version: "v0.2.0-rc.1", Time: time.Unix(5, 0).UTC(), Registry: "localhost", BaseURL: "https://files.example"},
		},
		"Dirty": {
			reason: "a test may build what is not committed, but not as the commit", changed: true, o: options{version: "v0.1.0", registry: registry, allowDirty: true},
			want: release{Version: "v0.1.0", Commit: "-dirty", Time: time.Unix(1_700_000_001, 0).UTC(), Registry: registry, BaseURL: homepage + "/releases/download/v0.1.0"},
		},
		"NoTag":       {reason: "without a tag, the version is unknown", o: options{registry: registry}, err: "the commit must have a tag that is a semantic version, such as v0.1.0"},
		"NotSemantic": {reason: "krew accepts semantic versions only", tags: []string{"v1"}, o: options{registry: registry}, err: "got the tags [v1]: tag it, or set VERSION"},
		"Candidate": {
			reason: "git would choose one of the tags, perhaps the wrong one", tags: []string{"v0.1.0-rc.2", "v0.1.0"},
			o: options{registry: registry}, err: "got v0.1.0, v0.1.0-rc.2: set VERSION",
		},
		"Metadata":   {reason: "an image's tag has no +", o: options{version: "v0.1.0+1", registry: registry}, err: "must be a semantic version"},
		"LongTag":    {reason: "an image's tag has at most 128 characters", o: options{version: "v0.1.0-" + strings.Repeat("a", 122), registry: registry}, err: "name image"},
		"Changed":    {reason: "a release of changed files cannot be built again from its commit", changed: true, o: options{version: "v0.1.0", registry: registry}, err: "?? new"},
		"NoRegistry": {reason: "an image has a full name", o: options{version: "v0.1.0"}, err: "flag --registry: must be"},
		"NoHost":     {reason: "a node would look for the image in its default registry", o: options{version: "v0.1.0", registry: "patchbay"}, err: "flag --registry: must be a host"},
		"URL":        {reason: "the name of an image is no URL", o: options{version: "v0.1.0", registry: "https://" + registry}, err: `flag --registry: must be a host and a path in lower case, such as registry.example/patchbay, got "https://registry.example/patchbay"`},
		"UpperCase":  {reason: "the path in the name of an image has lower case", o: options{version: "v0.1.0", registry: "registry.example/Patchbay"}, err: "flag --registry: must be a host and a path in lower case"},
		"HTTP":       {reason: "krew downloads by https", o: options{version: "v0.1.0", registry: registry, baseURL: "http://files.example"}, err: "flag --base-url: must begin with https://"},
		"Epoch":      {reason: "a wrong time would be in all files", o: options{version: "v0.1.0", registry: registry}, epoch: "now", err: `SOURCE_DATE_EPOCH must be a number of seconds, got "now"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			commit(t, dir)
			for i, tag := range tc.tags {
				// Every second tag is an object of its own.
				runGit(t, dir, [][]string{{"tag", tag}, {"tag", "--annotate", "--message", tag, tag}}[i%2]...)
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
			head, err := git(dir, "rev-parse", "HEAD")
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Source, tc.want.Commit = dir, head+tc.want.Commit
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// The settings of the user who builds hide no change and no new file, and do not disturb what is read from git.
func TestDescribeWithSettings(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		config [2]string
		// files are those that are new since the commit.
		files map[string]string
		err   string
	}{
		"NoUntracked": {
			reason: "the setting hides new files", config: [2]string{"status.showUntrackedFiles", "no"},
			files: map[string]string{"new.go": ""}, err: "?? new.go",
		},
		"ExcludesFile": {
			reason: "the user's own list of files to ignore hides new files", config: [2]string{"core.excludesFile", "ignore"},
			files: map[string]string{"new.go": ""}, err: "?? new.go",
		},
		"InfoExclude": {
			reason: "the clone's own list of files to ignore hides new files",
			files:  map[string]string{"new.go": "", ".git/info/exclude": "new.go\n"}, err: "?? new.go",
		},
		"Repository": {reason: "a file that the repository ignores is not part of the source", files: map[string]string{"bin/program": ""}},
		"Signature":  {reason: "what gpg prints about the commit's signature is not its time", config: [2]string{"log.showSignature", "true"}},
		"Columns":    {reason: "tags are still one on each line", config: [2]string{"column.ui", "always"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeFiles(t, dir, map[string]string{
				".gitignore": "/bin/\n", "ignore": "new.go\n", "gpg": "#!/bin/sh\necho 'gpg: no public key' >&2\nexit 2\n",
			})
			commit(t, dir)
			sign(t, dir)
			runGit(t, dir, "tag", "v0.1.0")
			runGit(t, dir, "tag", "other")
			if tc.config[0] != "" {
				runGit(t, dir, "config", tc.config[0], tc.config[1])
			}
			writeFiles(t, dir, tc.files)
			got, err := describe(dir, options{registry: "registry.example"}, "")
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if want := time.Unix(1_700_000_001, 0); !got.Time.Equal(want) {
				t.Errorf("%s: got time %s, want %s", tc.reason, got.Time, want)
			}
		})
	}
}

// sign gives the commit a signature that the program gpg in dir cannot verify.
func sign(t *testing.T, dir string) {
	t.Helper()
	object, err := git(dir, "cat-file", "commit", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	const signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----\n\n"
	path := filepath.Join(t.TempDir(), "commit")
	if err := os.WriteFile(path, []byte(strings.Replace(object, "\n\n", "\n"+signature, 1)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	signed, err := git(dir, "hash-object", "-t", "commit", "-w", path)
	if err != nil {
		t.Fatal(err)
	}
	runGit(t, dir, "update-ref", "HEAD", signed)
	runGit(t, dir, "config", "gpg.program", filepath.Join(dir, "gpg"))
}

// writeFiles writes executable files below dir.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
