// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// folder is where ip-netns(8) keeps names.
const folder = "/run/netns/"

// Path returns the file that names a namespace.
func Path(name string) string { return folder + name }

// Exists tells whether there is a namespace of that name.
func Exists(name string) bool {
	_, err := os.Stat(Path(name))
	return err == nil
}

// Add makes a namespace with its loopback up. One that exists is fine.
func Add(name string) error {
	if !Exists(name) {
		if err := run("", "netns", "add", name); err != nil {
			return err
		}
	}
	return Batch(name, "link set lo up")
}

// Delete removes a namespace's name; the kernel removes the namespace with all its
// links when the last process in it is gone. None of that name is fine.
func Delete(name string) error {
	if !Exists(name) {
		return nil
	}
	return run("", "netns", "delete", name)
}

// Batch executes lines of ip(8), without the leading "ip", in a namespace, up to the
// first that fails.
func Batch(name string, lines ...string) error {
	return run(strings.Join(lines, "\n"), "-netns", name, "-batch", "-")
}

// Links lists the names of the links in a namespace.
func Links(name string) ([]string, error) {
	out, err := exec.Command("ip", "-netns", name, "-brief", "link").Output()
	if err != nil {
		return nil, wrap(err, "list links in "+name)
	}
	var links []string
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			link, _, _ := strings.Cut(fields[0], "@")
			links = append(links, link)
		}
	}
	return links, nil
}

func run(stdin string, args ...string) error {
	cmd := exec.Command("ip", args...)
	cmd.Stdin = strings.NewReader(stdin)
	_, err := cmd.Output()
	return wrap(err, "run ip "+strings.Join(args, " ")+" "+stdin)
}

func wrap(err error, what string) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return fmt.Errorf("%s: %w: %s", what, err, exit.Stderr)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}
