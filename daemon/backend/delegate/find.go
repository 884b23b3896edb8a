// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// errMissing says that no folder has the plugin.
var errMissing = errors.New("plugin is not installed")

// FindInPath returns the absolute path, below the root, of the first executable
// file of that name in the folders, or errMissing.
func (e *executor) FindInPath(plugin string, folders []string) (string, error) {
	if !fileName.MatchString(plugin) {
		return "", fmt.Errorf("find plugin %q: not a file name", plugin)
	}
	for _, dir := range folders {
		path := filepath.Join(dir, plugin)
		ok, err := e.executable(path)
		if err != nil {
			return "", fmt.Errorf("find plugin %s: %w", path, err)
		}
		if ok {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: plugin %s is in none of the folders of CNI_PATH: %s", errMissing, plugin, strings.Join(folders, ", "))
}

// executable looks the path up as the plugin's process will: links, absolute
// ones too, are the root folder's, not the daemon's own.
func (e *executor) executable(path string) (bool, error) {
	root, err := os.Open(e.root)
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	fd, err := unix.Openat2(int(root.Fd()), path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT,
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0, nil
}
