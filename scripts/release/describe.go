// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// release is what all files of a release depend on beside the source.
type release struct {
	// Source is the root of the work tree.
	Source string
	// Version is a semantic version with the prefix v.
	Version string
	Commit  string
	// Time is that of the commit.
	Time time.Time
	// Registry is the registry and path in the names of the images.
	Registry string
	// BaseURL is where the archives are downloaded from.
	BaseURL string
}

// homepage is where the project is.
const homepage = "https://github.com/patchbay-cni/patchbay"

// versionForm is that of semantic versions without build metadata, which tags of images cannot have.
var versionForm = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// describe reads the commit of a work tree. The epoch is that of the environment: seconds since 1970 that
// replace the time of the commit, or "".
func describe(source string, o options, epoch string) (release, error) {
	r := release{Source: source, Version: o.version, Registry: strings.TrimSuffix(o.registry, "/"), BaseURL: strings.TrimSuffix(o.baseURL, "/")}
	var err error
	if r.Version == "" {
		if r.Version, err = git(source, "describe", "--tags", "--exact-match"); err != nil {
			return release{}, fmt.Errorf("the commit must have a tag such as v0.1.0: tag it, or set VERSION: %w", err)
		}
	}
	if !versionForm.MatchString(r.Version) {
		return release{}, fmt.Errorf("version %q must be a semantic version such as v0.1.0 or v0.1.0-rc.1", r.Version)
	}
	if r.Registry == "" {
		return release{}, errors.New("flag --registry: must be a registry, such as registry.example/patchbay")
	}
	if r.BaseURL == "" {
		r.BaseURL = homepage + "/releases/download/" + r.Version
	}
	if !strings.HasPrefix(r.BaseURL, "https://") {
		return release{}, fmt.Errorf("flag --base-url: must begin with https://, got %q", r.BaseURL)
	}
	changes, err := git(source, "status", "--porcelain")
	if err != nil {
		return release{}, fmt.Errorf("find uncommitted changes: %w", err)
	}
	if changes != "" && !o.allowDirty {
		return release{}, fmt.Errorf("the work tree must be a commit: commit or remove these changes, or set ALLOW_DIRTY=1 for a test:\n%s", changes)
	}
	if r.Commit, err = git(source, "rev-parse", "HEAD"); err != nil {
		return release{}, fmt.Errorf("find commit: %w", err)
	}
	if epoch == "" {
		if epoch, err = git(source, "log", "-1", "--format=%ct"); err != nil {
			return release{}, fmt.Errorf("find the time of the commit: %w", err)
		}
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return release{}, fmt.Errorf("SOURCE_DATE_EPOCH must be a number of seconds, got %q", epoch)
	}
	r.Time = time.Unix(seconds, 0).UTC()
	return r, nil
}

// git returns what git prints in a work tree, without space around it.
func git(source string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stderr = source, &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
