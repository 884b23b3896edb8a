// SPDX-License-Identifier: Apache-2.0

//go:build docs

package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/test/lab"
	"github.com/patchbay-cni/patchbay/test/source"
)

const (
	// commandTimeout is how long a command may take on a busy machine.
	commandTimeout = 5 * time.Minute
	// settleTimeout is how long the output of a command may be another one, because a controller works.
	settleTimeout = 4 * time.Minute
	// failedTimeout is the same for a page on which a command has failed already.
	failedTimeout = 5 * time.Second
)

// reading are the commands that change nothing, so that they can be repeated.
var reading = regexp.MustCompile(`^(?:bin/lab )?(?:kubectl (?:--as \w+ |-n [\w-]+ )*(?:get|describe|logs|explain|exec|rollout status) |exec |status|curl )`)

// rejected is the first word of an output that is an error.
var rejected = regexp.MustCompile(`^(?:[Ee]rror\b|The \w+ "[^"]+" is invalid:)`)

// The pages' commands do what the pages say, for a reader who follows one page after the other.
func TestDocs(t *testing.T) {
	r := newReader(t)
	for _, p := range parts {
		name := p.page
		if p.from != "" {
			name += " from " + p.from
		}
		t.Run(name, func(t *testing.T) { r.follow(t, &p) })
	}
}

// reader follows pages in a lab. Its working folder has what the clone of a reader has.
type reader struct {
	lab  *lab.Lab
	dir  string
	path string
}

// newReader starts a lab without Patchbay, which the pages install. LAB names one that is up and stays.
func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{dir: t.TempDir()}
	name, kept := os.LookupEnv("LAB")
	if kept {
		l, err := lab.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		r.lab = l
	} else {
		r.lab = lab.Start(t, lab.Config{Nodes: 2})
	}
	for _, name := range []string{"examples", "deployments", "charts", "bin/kubectl-patchbay", "bin/images"} {
		target, err := source.Path(name)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(r.dir, name)), 0o755), os.Symlink(target, filepath.Join(r.dir, name)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	program, err := source.Path("bin", "lab")
	kubernetes, err2 := source.Path("bin", "kubernetes")
	if err := errors.Join(err, err2, os.Mkdir(filepath.Join(r.dir, "local"), 0o755)); err != nil {
		t.Fatal(err)
	}
	helm, err := source.Path("bin", "helm")
	if err := errors.Join(err, os.Symlink(helm, filepath.Join(r.dir, "local", "helm"))); err != nil {
		t.Fatal(err)
	}
	if kept {
		// The page that installs it may have been followed in an earlier run.
		if err := os.Symlink(filepath.Join(filepath.Dir(program), "kubectl-patchbay"), filepath.Join(r.dir, "local", "kubectl-patchbay")); err != nil {
			t.Fatal(err)
		}
	}
	r.path = strings.Join([]string{filepath.Join(r.dir, "local"), kubernetes, os.Getenv("PATH")}, ":")
	// The pages are about the lab with the default name.
	script := fmt.Sprintf("#!/bin/sh\nexec %s --name %s \"$@\"\n", program, r.lab.Name())
	if err := os.WriteFile(filepath.Join(r.dir, "bin", "lab"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

// follow does what a part of a page says.
func (r *reader) follow(t *testing.T, p *part) {
	t.Helper()
	r.prepare(t, p, p.setup)
	for _, b := range p.blocks(t) {
		r.prepare(t, p, byFirstLine(p.steps, &b))
		switch {
		case byFirstLine(excuses[p.page], &b) != "":
		case byFirstLine(p.files, &b) != "":
			r.save(t, p, &b)
		case b.Language == "yaml":
			r.validate(t, p, &b)
		case isShell(&b):
			commands, err := b.Commands()
			if err != nil {
				t.Fatalf("%s:%v", p.page, err)
			}
			for _, c := range commands {
				r.do(t, p, c)
			}
		}
	}
	r.prepare(t, p, p.cleanup)
}

// prepare runs a script that is not of the page.
func (r *reader) prepare(t *testing.T, p *part, script string) {
	t.Helper()
	if script == "" {
		return
	}
	if out, code := r.run(t, script, ""); code != 0 {
		t.Fatalf("%s: %s\nexit code %d\n%s", p.page, script, code, out)
	}
}

// do runs a command, and repeats one that only reads until its output is the expected one.
func (r *reader) do(t *testing.T, p *part, c Command) {
	t.Helper()
	expected := Expect(c.Output, p.varying...)
	script := strings.NewReplacer(p.values...).Replace(c.Text)
	limit := settleTimeout
	if t.Failed() {
		limit = failedTimeout
	}
	fails := len(c.Output) > 0 && rejected.MatchString(c.Output[0])
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Second) {
		out, code := r.run(t, script, "")
		diff := ""
		if len(c.Output) > 0 {
			diff = expected.Diff(out)
		}
		if diff == "" && (code != 0) == fails {
			return
		}
		if reading.MatchString(script) && time.Now().Before(deadline) {
			continue
		}
		message := fmt.Sprintf("%s:%d: $ %s\n", p.page, c.Line, c.Text)
		if script != c.Text {
			message += "run as: " + script + "\n"
		}
		if (code != 0) != fails {
			message += fmt.Sprintf("exit code %d\n", code)
		}
		if diff == "" {
			diff = out
		} else {
			message += "output (-the page +the command):\n"
		}
		t.Error(message + diff)
		return
	}
}

// save writes a block into the file that the page names.
func (r *reader) save(t *testing.T, p *part, b *Block) {
	t.Helper()
	text := strings.NewReplacer(p.values...).Replace(strings.Join(b.Lines, "\n")) + "\n"
	if err := os.WriteFile(filepath.Join(r.dir, byFirstLine(p.files, b)), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// validate has the API server check the whole objects of a block, and parses the others.
func (r *reader) validate(t *testing.T, p *part, b *Block) {
	t.Helper()
	for object := range strings.SplitSeq(strings.Join(b.Lines, "\n"), "\n---\n") {
		var head struct{ APIVersion, Kind string }
		var parsed any
		if err := yaml.Unmarshal([]byte(object), &parsed); err != nil {
			t.Errorf("%s:%d: %v", p.page, b.Line, err)
			continue
		}
		if yaml.Unmarshal([]byte(object), &head) != nil || head.APIVersion == "" || head.Kind == "" {
			continue // a list, or a part of an object
		}
		if out, code := r.run(t, "kubectl apply --dry-run=server --filename -", object); code != 0 {
			t.Errorf("%s:%d: the API server rejects this %s\n%s\n%s", p.page, b.Line, head.Kind, out, object)
		}
	}
}

// run runs a script and returns what it prints and its exit code.
func (r *reader) run(t *testing.T, script, input string) (printed string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	cmd, err := r.lab.Command(ctx, "bash", "-e", "-o", "pipefail", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = r.dir, strings.NewReader(input), &out, &out
	// A home of its own has no cache of another cluster. kubectl's plugins are where the pages install them.
	cmd.Env = append(cmd.Env, "HOME="+r.dir, "PATH="+r.path)
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out.String(), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), 0
}
