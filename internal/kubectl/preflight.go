// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/patchbay-cni/patchbay/internal/preflight"
	"github.com/patchbay-cni/patchbay/internal/version"
)

// The values of the flag --output of preflight.
const (
	outputTable = "table"
	outputJSON  = "json"
)

// newPreflight is the verb `preflight`.
func newPreflight(f *factory) *cobra.Command {
	c := &preflightCheck{out: f.Out, warnings: f.ErrOut}
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Check whether Patchbay can be installed on a cluster, before anything is installed",
		Long: "Reads the API server and the Node objects. Then it runs a Pod for some seconds on each node, which reads the\n" +
			"kernel's modules and sysctls, the NICs, and what the node has of other CNI plugins. The Pods run as root and\n" +
			"see all files of the node, so use only an image that you trust. They have no capabilities and no token of\n" +
			"the API server. They run in a namespace of their own, which the command removes at its end, also after the\n" +
			"first Ctrl-C. The command fails if a check fails.",
		Example: "  kubectl patchbay preflight\n" +
			"  kubectl patchbay preflight --nodes=node-1,node-2 --nics=ens4 --features=vlan,ipvlan\n" +
			"  kubectl patchbay preflight --no-pods --output=json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.parseFlags(); err != nil {
				return err
			}
			if err := c.connect(f); err != nil {
				return err
			}
			return c.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&c.nodes, "nodes", nil, "the nodes to check, such as node-1,node-2; default: all")
	flags.StringSliceVar(&c.features, "features", []string{"ipvlan", "macvlan", "vlan", "vxlan"}, "what must work on each node: ipvlan, macvlan, vlan, vxlan, source-guard")
	flags.StringSliceVar(&c.want.NICs, "nics", nil, "the NICs that networks will name as host_device, which each node must have")
	flags.StringVar(&c.pods.image, "image", version.Image("patchbayd"), "the node daemon's image, for the Pods that read the nodes")
	flags.StringVar(&c.pods.binDir, "cni-bin-dir", "/opt/cni/bin", "the folder of CNI plugins on the nodes")
	flags.StringVar(&c.pods.confDir, "cni-conf-dir", "/etc/cni/net.d", "the folder of CNI configurations on the nodes")
	flags.StringVar(&c.want.DefaultDelegate, "default-delegate", "", "the file in that folder that Pods without an annotation shall get, such as 10-calico.conflist; default: the first one")
	flags.DurationVar(&c.pods.timeout, "timeout", 2*time.Minute, "how long to wait for the Pods")
	flags.BoolVar(&c.noPods, "no-pods", false, "run no Pods: check only what the API server has")
	flags.StringVarP(&c.output, "output", "o", outputTable, "how to print the results: table or json")
	registerFlagCompletion(cmd, "nodes", f.completeNodes)
	registerFlagCompletion(cmd, "output", cobra.FixedCompletions([]cobra.Completion{outputTable, outputJSON}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// preflightCheck is one call of `preflight`: its flags, its clients, and where it prints.
type preflightCheck struct {
	out, warnings io.Writer

	nodes, features []string
	want            preflight.Requirements
	noPods          bool
	output          string

	api  clusterReader
	pods nodePods
}

func (c *preflightCheck) parseFlags() error {
	for _, name := range c.features {
		feature := preflight.Feature(name)
		if !slices.Contains(preflight.Features(), feature) {
			return fmt.Errorf("flag --features: must be of ipvlan, macvlan, vlan, vxlan and source-guard: got %q", name)
		}
		c.want.Features = append(c.want.Features, feature)
	}
	if c.output != outputTable && c.output != outputJSON {
		return fmt.Errorf("flag --output: must be table or json: got %q", c.output)
	}
	if c.pods.image == "" {
		return errors.New("flag --image: must be the node daemon's image; with --no-pods, none is used")
	}
	for name, dir := range map[string]string{"cni-bin-dir": c.pods.binDir, "cni-conf-dir": c.pods.confDir} {
		if !strings.HasPrefix(dir, "/") {
			return fmt.Errorf("flag --%s: must be an absolute path: got %q", name, dir)
		}
	}
	if strings.Contains(c.want.DefaultDelegate, "/") {
		return fmt.Errorf("flag --default-delegate: must be the name of a file in the folder of --cni-conf-dir, without a folder: got %q", c.want.DefaultDelegate)
	}
	c.pods.defaultDelegate = c.want.DefaultDelegate
	if c.pods.timeout <= 0 {
		return fmt.Errorf("flag --timeout: must be positive: got %s", c.pods.timeout)
	}
	return nil
}

func (c *preflightCheck) connect(f *factory) error {
	cfg, err := f.restConfig()
	if err != nil {
		return err
	}
	cfg.QPS = -1 // a client that throttles itself would exceed the timeout in a cluster of many nodes
	if c.api.kube, err = kubernetes.NewForConfig(cfg); err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	if c.api.metadata, err = metadata.NewForConfig(cfg); err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	c.pods.kube, c.pods.warnings, c.pods.server = c.api.kube, c.warnings, cfg.Host
	return nil
}

func (c *preflightCheck) run(ctx context.Context) error {
	cluster, err := c.api.read(ctx, c.nodes)
	if err != nil {
		return err
	}
	all := preflight.CheckCluster(cluster)
	if slices.Contains(c.want.Features, preflight.SourceGuard) {
		for _, n := range cluster.Nodes {
			all = append(all, preflight.CheckSourceGuard(n)...)
		}
	}
	var interrupted error
	if !c.noPods {
		var results []preflight.Result
		results, interrupted = c.checkNodes(ctx, cluster)
		all = append(all, results...)
	}
	// Results that were obtained are printed, whatever has happened since.
	if err := c.print(all); err != nil {
		return errors.Join(interrupted, err)
	}
	if interrupted != nil {
		return interrupted
	}
	return failed(all)
}

// checkNodes reads the nodes that can run Pods, and checks what the Pods have found.
func (c *preflightCheck) checkNodes(ctx context.Context, cluster *preflight.Cluster) ([]preflight.Result, error) {
	var nodes []preflight.Node
	for _, n := range cluster.Nodes {
		if n.OS == "linux" && n.Ready != "Unknown" {
			nodes = append(nodes, n)
		}
	}
	facts, all, err := c.pods.read(ctx, nodes)
	for _, n := range nodes {
		if f := facts[n.Name]; f != nil {
			all = append(all, preflight.CheckFacts(n.Name, f, c.want)...)
		}
	}
	return append(all, preflight.CompareNICs(facts)...), err
}

// failed returns an error if a check failed.
func failed(all []preflight.Result) error {
	var checks []string
	for _, r := range all {
		if r.Level == preflight.Failure {
			checks = append(checks, r.Check)
		}
	}
	if len(checks) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d checks failed: %s", len(checks), len(all), strings.Join(slices.Compact(slices.Sorted(slices.Values(checks))), ", "))
}

func (c *preflightCheck) print(all []preflight.Result) error {
	if c.output == outputJSON {
		encoder := json.NewEncoder(c.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(struct {
			Version string             `json:"version"`
			Results []preflight.Result `json:"results"`
		}{version.String(), all})
	}
	return printTable(c.out, groupResults(all))
}

// resultRow is a row of the table: a result that several nodes may have in common.
type resultRow struct {
	preflight.Result

	nodes []string
}

// groupResults merges results that differ in the node only. The order is that of the first of each.
func groupResults(all []preflight.Result) []*resultRow {
	var rows []*resultRow
	index := map[preflight.Result]*resultRow{}
	for _, r := range all {
		key := r
		if key.Node != "" {
			key.Node = "any" // a check of the cluster stays apart from one of nodes
		}
		row := index[key]
		if row == nil {
			row = &resultRow{Result: r}
			index[key] = row
			rows = append(rows, row)
		}
		if r.Node != "" {
			row.nodes = append(row.nodes, r.Node)
		}
	}
	return rows
}

// printable replaces what a terminal would not print as text, such as escape sequences in the names of a node's files.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return unicode.ReplacementChar
		}
		return c
	}, text)
}

// printTable prints the rows, and below them what to do about each failure and warning.
func printTable(out io.Writer, rows []*resultRow) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "RESULT\tNODES\tCHECK\tFOUND")
	for _, row := range rows {
		nodes := preflight.JoinNodes(row.nodes)
		if len(row.nodes) == 0 {
			nodes = "(cluster)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", strings.ToUpper(string(row.Level)), printable(nodes), printable(row.Check), printable(row.Message))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var advice strings.Builder
	for _, level := range []preflight.Level{preflight.Failure, preflight.Warning} {
		for _, row := range rows {
			if row.Level != level {
				continue
			}
			where := ""
			if len(row.nodes) > 0 {
				where = " on " + strings.Join(row.nodes, ", ")
			}
			fmt.Fprintf(&advice, "\n%s: %s%s: %s\n  %s\n", strings.ToUpper(string(level)), printable(row.Check), printable(where), printable(row.Message), printable(row.Remedy))
		}
	}
	_, err := io.WriteString(out, advice.String())
	return err
}
