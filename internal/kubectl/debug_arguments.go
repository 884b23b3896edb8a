// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// debugArguments are the arguments of a verb that runs kubectl in a cluster of the hub.
type debugArguments struct {
	object  string   // KIND/NAME, or the NAME of a Pod
	cluster string   // of the flag --in; may be empty
	kubectl []string // all others, for kubectl
	help    bool
}

// valueFlags are kubectl's flags of these verbs with a value, which may be the next argument.
func valueFlags() []string {
	return []string{
		"-c", "--container", "--pod-running-timeout", "-v", "--v", "--vmodule", "--log-flush-frequency", "--profile", "--profile-output", "--kuberc",
		"--since", "--since-time", "--tail", "--limit-bytes", "--max-log-requests",
		"--address", "--sort-by", "--field-selector", "-l", "--selector",
	}
}

// sharedFlags are flags of the plugin that kubectl gets, too: the kubeconfig file for kubectl does not have them.
func sharedFlags() []string { return []string{"request-timeout", "cache-dir"} }

// inFlag is the flag that selects a cluster. --cluster is the one of a kubeconfig.
const inFlag = "in"

// parseDebugArguments separates the flags of the plugin, which select the hub, from those of kubectl. It passes on what
// it does not know, so that the flags are those of the user's kubectl. The first argument without a flag is the object.
func parseDebugArguments(cmd *cobra.Command, args []string) (*debugArguments, error) {
	d := &debugArguments{}
	_ = cmd.InheritedFlags() // adds them to cmd.Flags()
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			d.kubectl = append(d.kubectl, args[i:]...)
			break
		}
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			if d.object == "" {
				d.object = arg
			} else {
				d.kubectl = append(d.kubectl, arg)
			}
			continue
		}
		if arg == "-h" || arg == "--help" {
			d.help = true
			return d, nil
		}
		flag, value, hasValue := ownFlag(cmd, arg)
		next := i+1 < len(args)
		switch {
		case flag == nil:
			d.kubectl = append(d.kubectl, arg)
			if next && slices.Contains(valueFlags(), arg) {
				i++
				d.kubectl = append(d.kubectl, args[i])
			}
			continue
		case !hasValue && flag.NoOptDefVal != "":
			value = flag.NoOptDefVal
		case !hasValue && !next:
			return nil, fmt.Errorf("%s: flag %s must have a value", cmd.CommandPath(), arg)
		case !hasValue:
			i++
			value = args[i]
		}
		if err := cmd.Flags().Set(flag.Name, value); err != nil {
			return nil, fmt.Errorf("%s: %w", cmd.CommandPath(), err)
		}
		if slices.Contains(sharedFlags(), flag.Name) {
			d.kubectl = append(d.kubectl, "--"+flag.Name+"="+value)
		}
	}
	d.cluster = cmd.Flags().Lookup(inFlag).Value.String()
	return d, nil
}

// ownFlag returns the plugin's flag of an argument, with the value if that is in the same argument; nil for one of
// kubectl.
func ownFlag(cmd *cobra.Command, arg string) (flag *pflag.Flag, value string, hasValue bool) {
	if name, ok := strings.CutPrefix(arg, "--"); ok {
		name, value, hasValue = strings.Cut(name, "=")
		return cmd.Flags().Lookup(name), value, hasValue
	}
	flag = cmd.Flags().ShorthandLookup(arg[1:2])
	if flag == nil || flag.NoOptDefVal != "" { // kubectl's flags may be together, such as -it
		return nil, "", false
	}
	value = strings.TrimPrefix(arg[2:], "=")
	return flag, value, value != ""
}

// addInFlag adds the flag that selects a cluster.
func addInFlag(cmd *cobra.Command, f *factory) {
	cmd.Flags().String(inFlag, "", "the Cluster to use; without it the first one that can be reached and has a ready Pod of the object")
	registerFlagCompletion(cmd, inFlag, flagValue(f.clusterNames))
}
