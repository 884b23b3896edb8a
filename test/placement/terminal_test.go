// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/docs"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/source"
)

// terminal is a person's terminal in the repository, with our programs in the PATH.
type terminal struct {
	t   *testing.T
	dir string
}

// path is a path of the repository.
func (s *terminal) path(name string) string {
	s.t.Helper()
	path, err := source.Path(name)
	if err != nil {
		s.t.Fatal(err)
	}
	return path
}

// program is where a program of ours is.
func (s *terminal) program(name string) string {
	s.t.Helper()
	if *programsDir != "" {
		return filepath.Join(*programsDir, name)
	}
	return s.path(filepath.Join("bin", name))
}

func (s *terminal) env(kubeconfig string) []string {
	return []string{
		"PATH=" + *programsDir + ":" + s.path("bin") + ":" + s.path("bin/kubernetes") + ":" + os.Getenv("PATH"),
		"HOME=" + filepath.Join(s.dir, filepath.Base(filepath.Dir(kubeconfig))), "KUBECONFIG=" + kubeconfig,
	}
}

// run runs what somebody pastes, with a kubeconfig, and returns what it prints.
func (s *terminal) run(kubeconfig, text string) string {
	s.t.Helper()
	out, err := s.tryRun(kubeconfig, text)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", text, err, out)
	}
	return out
}

// tryRun does so, and it may fail.
func (s *terminal) tryRun(kubeconfig, text string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", text)
	cmd.Dir, cmd.Env = s.path("."), append(os.Environ(), s.env(kubeconfig)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// runAll runs commands one after the other.
func (s *terminal) runAll(kubeconfig string, commands []string) {
	s.t.Helper()
	for _, command := range commands {
		s.run(kubeconfig, command)
	}
}

// fromPage returns the commands of the block of docs/placement.md that has a text, with values in place of the
// page's, in pairs. Objects are applied. TestEachBlockIsRunOrExcused in test/docs checks that each block is
// taken once.
func (s *terminal) fromPage(text string, values ...string) []string {
	s.t.Helper()
	page, err := docs.Read("docs/placement.md")
	if err != nil {
		s.t.Fatal(err)
	}
	block, err := page.Block(text)
	if err != nil {
		s.t.Fatal(err)
	}
	lines := strings.Join(block.Lines, "\n")
	for i := 0; i < len(values); i += 2 {
		if !strings.Contains(lines, values[i]) {
			s.t.Fatalf("%s:%d: the block has no %q to replace", page.Path, block.Line, values[i])
		}
	}
	replaced := strings.NewReplacer(values...)
	if block.Language == "yaml" {
		return []string{"kubectl apply --filename - <<'END'\n" + replaced.Replace(lines) + "\nEND"}
	}
	all, err := block.Commands()
	if err != nil {
		s.t.Fatal(err)
	}
	var found []string
	for _, c := range all {
		found = append(found, replaced.Replace(c.Text))
	}
	return found
}

// startBackground starts a program that goes on; what it prints is in the file.
func (s *terminal) startBackground(name, program string, args ...string) (process.ID, string) {
	s.t.Helper()
	log := filepath.Join(s.dir, name+".log")
	id, err := process.Start(process.Spec{Args: append([]string{s.program(program)}, args...), Dir: s.dir, Log: log, DieWithParent: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = id.Kill(context.WithoutCancel(s.t.Context())) })
	return id, log
}

// stopProgram asks a program to end, and waits until it has.
func (s *terminal) stopProgram(t *testing.T, id process.ID) {
	t.Helper()
	if err := id.Stop(t.Context(), waitTimeout); err != nil {
		t.Fatal(err)
	}
}

// commands are the lines of a text that can be pasted.
func commands(text string) []string {
	var found []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "export ") || strings.HasPrefix(line, "kubectl ") {
			found = append(found, line)
		}
	}
	return found
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
