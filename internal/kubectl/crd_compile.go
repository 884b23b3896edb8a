// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-cni/patchbay/internal/crdcompiler"
)

// The values of the flag --recursive-types.
const (
	recursiveRefuse = "refuse"
	recursiveCut    = "cut"
)

// lastApplied is the annotation in which kubectl apply stores the object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// newCompile is the verb `crd compile`.
func newCompile(f *factory) *cobra.Command {
	c := &compilation{out: f.Out, warnings: f.ErrOut}
	cmd := &cobra.Command{
		Use:   "compile FILE... --kubernetes=MINOR[,MINOR...]",
		Short: "Make self-contained CustomResourceDefinitions from templates with references",
		Long: "Reads templates of CustomResourceDefinitions whose schemas refer to Kubernetes' own types, such as\n" +
			"`$ref: io.k8s.api.core.v1.PodTemplateSpec`, to files or to each other, and writes a CustomResourceDefinition\n" +
			"for each version of Kubernetes. NAME.patch.yaml beside NAME.yaml has JSON patches for the result. The command\n" +
			"needs neither a cluster nor a network: the OpenAPI documents of Kubernetes are part of it.\n" +
			"Put files to which templates refer into a subfolder if you name the templates by a pattern.\n" +
			"With --diff, the exit code is 2 if the results differ. It is 1 for all other errors.\n" +
			"docs/crd-compiler.md describes the templates.",
		Example: "  kubectl patchbay crd compile daskcluster.yaml --kubernetes=1.35\n" +
			"  kubectl patchbay crd compile templates/*.yaml --kubernetes=1.34,1.35 --check --output=crds\n" +
			"  kubectl patchbay crd compile templates/*.yaml --kubernetes=1.34,1.35 --diff=crds",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%s: give the files of templates, such as daskcluster.yaml", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&c.minors, "kubernetes", nil, "the versions of Kubernetes whose types the result has, such as 1.34,1.35")
	flags.StringVarP(&c.output, "output", "o", "", "the folder for the results: MINOR/NAME.yaml; default: standard output, for one version")
	flags.StringArrayVar(&c.maps, "map", nil, "PREFIX/=DIR: the folder of the documents whose names begin with a prefix, such as python://PACKAGE/=./PACKAGE")
	flags.IntVar(&c.options.MaxDescription, "max-descriptions", 0, "the characters that each of Kubernetes' descriptions may have; 0 leaves them out, -1 keeps them whole")
	flags.StringVar(&c.recursiveTypes, "recursive-types", recursiveRefuse, "what happens with a type that contains itself: refuse, or cut (any value is accepted there)")
	flags.BoolVar(&c.check, "check", false, "validate the results with the API server's own code: names, schemas, defaults, lists and CEL rules")
	flags.StringVar(&c.diff, "diff", "", "compare the results with a file of an earlier standard output or with the folder of an earlier --output, and end with exit code 2 if they differ")
	registerFlagCompletion(cmd, "kubernetes", completeMinors)
	registerFlagCompletion(cmd, "recursive-types", cobra.FixedCompletions([]cobra.Completion{recursiveRefuse, recursiveCut}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// completeMinors completes the last version in a list.
func completeMinors(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	openAPI, err := crdcompiler.ReadOpenAPI()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	before := toComplete[:strings.LastIndex(toComplete, ",")+1]
	var words []cobra.Completion
	for _, minor := range openAPI.Minors {
		if word := before + minor; strings.HasPrefix(word, toComplete) {
			words = append(words, word)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// compilation is one call of `crd compile`: its flags, and where it prints.
type compilation struct {
	out, warnings io.Writer

	minors         []string
	output, diff   string
	maps           []string
	recursiveTypes string
	check          bool
	options        crdcompiler.Options
}

func (c *compilation) run(ctx context.Context, files []string) error {
	if err := c.parseFlags(); err != nil {
		return err
	}
	templates, err := readTemplates(files)
	if err != nil {
		return err
	}
	crds, err := c.compile(ctx, templates)
	if err != nil {
		return err
	}
	switch {
	case c.diff != "":
		return c.compare(crds)
	case c.output != "":
		return c.write(crds)
	default:
		return c.print(crds)
	}
}

func (c *compilation) parseFlags() error {
	if len(c.minors) == 0 {
		return errors.New("flag --kubernetes: must name the versions of Kubernetes, such as --kubernetes=1.34,1.35")
	}
	if len(slices.Compact(slices.Sorted(slices.Values(c.minors)))) < len(c.minors) {
		return fmt.Errorf("flag --kubernetes: must name each version once: got %s", strings.Join(c.minors, ","))
	}
	if c.output != "" && c.diff != "" {
		return errors.New("flag --diff: must not be with --output: the one compares, the other writes")
	}
	if len(c.minors) > 1 && c.output == "" && c.diff == "" {
		return errors.New("flag --output: must name a folder for several versions of Kubernetes")
	}
	switch c.recursiveTypes {
	case recursiveRefuse, recursiveCut:
		c.options.CutRecursion = c.recursiveTypes == recursiveCut
	default:
		return fmt.Errorf("flag --recursive-types: must be refuse or cut: got %q", c.recursiveTypes)
	}
	for _, text := range c.maps {
		m, err := crdcompiler.ParseMap(text)
		if err != nil {
			return fmt.Errorf("flag --map: %w", err)
		}
		c.options.Maps = append(c.options.Maps, m)
	}
	return nil
}

// readTemplates reads the templates of all files. Files with patches are read beside their templates,
// so that a shell's pattern may match them.
func readTemplates(files []string) ([]*crdcompiler.Template, error) {
	var all []*crdcompiler.Template
	var patches []string
	seen := map[string]string{}
	for _, file := range files {
		if crdcompiler.IsPatch(file) {
			patches = append(patches, file)
			continue
		}
		templates, err := crdcompiler.ReadTemplates(file)
		if err != nil {
			return nil, err
		}
		for _, t := range templates {
			if other, ok := seen[t.Name]; ok {
				return nil, fmt.Errorf("%s: metadata.name: must be another than in %s: got %q in both", t.File, other, t.Name)
			}
			seen[t.Name] = t.File
		}
		all = append(all, templates...)
	}
	return all, checkPatches(patches, all)
}

// checkPatches fails for a file with patches that belongs to no template.
func checkPatches(patches []string, templates []*crdcompiler.Template) error {
	var problems []error
	for _, file := range patches {
		isRead := func(t *crdcompiler.Template) bool { return t.PatchFile != "" && isSameFile(t.PatchFile, file) }
		if !slices.ContainsFunc(templates, isRead) {
			problems = append(problems, fmt.Errorf("%s: must be NAME.patch.yaml beside its template NAME.yaml: give the template, too", file))
		}
	}
	return errors.Join(problems...)
}

// isSameFile compares two paths of files that may be written in different ways.
func isSameFile(first, second string) bool {
	info1, err1 := os.Stat(first)
	info2, err2 := os.Stat(second)
	return err1 == nil && err2 == nil && os.SameFile(info1, info2)
}

// compile returns the results for all versions. It reports the errors of all templates together.
func (c *compilation) compile(ctx context.Context, templates []*crdcompiler.Template) ([]*crdcompiler.CRD, error) {
	openAPI, err := crdcompiler.ReadOpenAPI()
	if err != nil {
		return nil, err
	}
	var crds []*crdcompiler.CRD
	var problems []problem
	for _, minor := range c.minors {
		definitions, err := openAPI.Of(minor)
		if err != nil {
			return nil, fmt.Errorf("flag --kubernetes: %w", err)
		}
		for _, t := range templates {
			crd, err := crdcompiler.Compile(ctx, t, definitions, c.options)
			if err == nil && c.check {
				err = crdcompiler.Check(ctx, crd)
			}
			if err == nil {
				err = c.warnOfSize(crd)
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				problems = addProblem(problems, err, minor)
			}
			crds = append(crds, crd)
		}
	}
	return crds, joinProblems(problems)
}

// problem is an error that is the same for some versions of Kubernetes.
type problem struct {
	err    error
	minors []string
}

func addProblem(problems []problem, err error, minor string) []problem {
	i := slices.IndexFunc(problems, func(p problem) bool { return p.err.Error() == err.Error() })
	if i < 0 {
		return append(problems, problem{err: err, minors: []string{minor}})
	}
	problems[i].minors = append(problems[i].minors, minor)
	return problems
}

func joinProblems(problems []problem) error {
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = fmt.Errorf("for Kubernetes %s: %w", strings.Join(p.minors, ", "), p.err)
	}
	return errors.Join(errs...)
}

// warnOfSize warns of a CRD that kubectl apply can only apply with --server-side.
func (c *compilation) warnOfSize(crd *crdcompiler.CRD) error {
	data, err := crd.JSON()
	if err != nil {
		return err
	}
	if len(data)+len("\n")+len(lastApplied) > crdcompiler.MaxAnnotation {
		_, err = fmt.Fprintf(c.warnings, "warning: %s for Kubernetes %s has %d bytes as compact JSON: apply it with kubectl apply --server-side, or compile it with a smaller --max-descriptions\n",
			crd.Name, crd.Minor, len(data))
	}
	return err
}

// compare prints how the results differ from files, and fails if they do.
func (c *compilation) compare(crds []*crdcompiler.CRD) error {
	info, err := os.Stat(c.diff)
	if err != nil {
		return fmt.Errorf("flag --diff: must be a file or a folder: %w", err)
	}
	if !info.IsDir() && len(c.minors) > 1 {
		return fmt.Errorf("flag --diff: must be a folder for several versions of Kubernetes: %s is a file", c.diff)
	}
	d := &comparison{out: c.out, path: c.diff, isFolder: info.IsDir()}
	return d.run(crds, c.minors)
}

// print writes all results to standard output.
func (c *compilation) print(crds []*crdcompiler.CRD) error {
	for i, crd := range crds {
		data, err := crd.YAML()
		if err != nil {
			return err
		}
		if i > 0 {
			data = append([]byte("---\n"), data...)
		}
		if _, err := c.out.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// write writes each result to its file.
func (c *compilation) write(crds []*crdcompiler.CRD) error {
	for _, crd := range crds {
		data, err := crd.YAML()
		if err != nil {
			return err
		}
		file := filepath.Join(c.output, crd.Path())
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			return fmt.Errorf("write CustomResourceDefinition: %w", err)
		}
		if _, err := fmt.Fprintln(c.out, file); err != nil {
			return err
		}
	}
	return nil
}
