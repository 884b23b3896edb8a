// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/patchbay-cni/patchbay/scripts/internal/product"
)

// release is what all files of a release depend on beside the source.
type release struct {
	// Source is the root of the work tree.
	Source string
	// Version is a semantic version with the prefix v.
	Version string
	// Commit is the hash of the commit, with the suffix -dirty if the work tree has changes.
	Commit string
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

// registryForm is that of a host with or without a port, and of a path, as container runtimes accept it in the name of
// an image.
var registryForm = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z.-]*[0-9A-Za-z])?(:\d+)?(/[0-9a-z]+(([._]|__|-+)[0-9a-z]+)*)*$`)

// describe reads the commit of a work tree. The epoch is that of the environment: seconds since 1970 that
// replace the time of the commit, or "".
func describe(source string, o options, epoch string) (release, error) {
	r := release{Source: source, Version: o.version, Registry: strings.TrimSuffix(o.registry, "/"), BaseURL: strings.TrimSuffix(o.baseURL, "/")}
	var err error
	if r.Version == "" {
		if r.Version, err = taggedVersion(source); err != nil {
			return release{}, err
		}
	}
	if !versionForm.MatchString(r.Version) {
		return release{}, fmt.Errorf("version %q must be a semantic version such as v0.1.0 or v0.1.0-rc.1", r.Version)
	}
	if err := checkNames(r); err != nil {
		return release{}, err
	}
	if r.BaseURL == "" {
		r.BaseURL = homepage + "/releases/download/" + r.Version
	}
	if !strings.HasPrefix(r.BaseURL, "https://") {
		return release{}, fmt.Errorf("flag --base-url: must begin with https://, got %q", r.BaseURL)
	}
	if r.Commit, err = git(source, "rev-parse", "HEAD"); err != nil {
		return release{}, fmt.Errorf("find commit: %w", err)
	}
	changes, err := uncommitted(source)
	if err != nil {
		return release{}, err
	}
	if changes != "" {
		if !o.allowDirty {
			return release{}, fmt.Errorf("the work tree must be a commit: commit or remove these changes, or set ALLOW_DIRTY=1 for a test:\n%s", changes)
		}
		r.Commit += "-dirty"
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

// taggedVersion returns the version that the commit has a tag of.
func taggedVersion(source string) (string, error) {
	tags, err := git(source, "for-each-ref", "--points-at", "HEAD", "--format", "%(refname:strip=2)", "refs/tags")
	if err != nil {
		return "", fmt.Errorf("list the tags of the commit: %w", err)
	}
	var versions []string
	for tag := range strings.FieldsSeq(tags) {
		if versionForm.MatchString(tag) {
			versions = append(versions, tag)
		}
	}
	switch len(versions) {
	case 0:
		return "", fmt.Errorf("the commit must have a tag that is a semantic version, such as v0.1.0, got the tags [%s]: tag it, or set VERSION",
			strings.Join(strings.Fields(tags), ", "))
	case 1:
		return versions[0], nil
	}
	return "", fmt.Errorf("the commit must have the tag of one version, got %s: set VERSION to one of them", strings.Join(versions, ", "))
}

// checkNames checks the names that the images get. Without a host, a node would look for an image in its default registry.
func checkNames(r release) error {
	if !registryForm.MatchString(r.Registry) {
		return fmt.Errorf("flag --registry: must be a host and a path in lower case, such as registry.example/patchbay, got %q", r.Registry)
	}
	for _, image := range product.Images() {
		if _, err := imageName(r, image); err != nil {
			return fmt.Errorf("flag --registry: must be a host and a path, such as registry.example/patchbay, got %q: %w", r.Registry, err)
		}
	}
	return nil
}

// imageName is the full name of an image of the release.
func imageName(r release, image product.Image) (name.Tag, error) {
	tag, err := name.NewTag(r.Registry+"/"+image.Name+":"+r.Version, name.StrictValidation)
	if err != nil {
		return name.Tag{}, fmt.Errorf("name image %s: %w", image.Name, err)
	}
	return tag, nil
}

// uncommitted lists the changed files of a work tree and its new files, in the form of `git status --short`. It ignores
// only what the .gitignore files of the repository ignore, whatever the user's settings of git ignore or hide.
func uncommitted(source string) (string, error) {
	changed, err := git(source, "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return "", fmt.Errorf("find uncommitted changes: %w", err)
	}
	created, err := git(source, "ls-files", "--others", "--exclude-per-directory=.gitignore")
	if err != nil {
		return "", fmt.Errorf("find new files: %w", err)
	}
	var lines []string
	if changed != "" {
		lines = append(lines, changed)
	}
	for path := range strings.Lines(created) {
		lines = append(lines, "?? "+strings.TrimSuffix(path, "\n"))
	}
	return strings.Join(lines, "\n"), nil
}

// git returns what git prints in a work tree, without space around it. The user's settings do not add signatures to it.
func git(source string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("git", append([]string{"-c", "log.showSignature=false"}, args...)...)
	cmd.Dir, cmd.Stderr = source, &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
