// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Options are the options of a device plugin.
type Options struct {
	// Resources are the resources to advertise.
	Resources []Resource
	// Dir is kubelet's folder of device plugins.
	Dir string
	// Sysfs is where sysfs is mounted. The network namespace of that mount must be the node's.
	Sysfs string
	// Interval is the time between two reads of sysfs.
	Interval time.Duration
	// Log reports registrations and changes.
	Log *slog.Logger
}

// Resource is a resource of the node, and the virtual functions that it consists of.
type Resource struct {
	// Name is the name of the resource, with a domain.
	Name string
	// PhysicalFunctions are the netdevs of physical functions. All of their virtual functions are part
	// of the resource.
	PhysicalFunctions []string
	// Functions are the PCI addresses of more virtual functions.
	Functions []string
}

// pciAddress matches the name of a PCI device in sysfs.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)

// ParseOptions reads the command line. It prints the help that -help asks for to stderr.
func ParseOptions(args []string, stderr io.Writer) (Options, error) {
	o := Options{Log: slog.New(slog.NewTextHandler(stderr, nil))}
	f := flag.NewFlagSet("deviceplugin", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.Dir, "dir", "/var/lib/kubelet/device-plugins", "kubelet's `folder` of device plugins")
	f.StringVar(&o.Sysfs, "sysfs", "/sys", "`folder` at which sysfs is mounted")
	f.DurationVar(&o.Interval, "interval", time.Second, "`duration` between two reads of sysfs")
	f.Func("resource", "a resource as `NAME=FUNCTIONS`; may be repeated. FUNCTIONS are PCI addresses, and netdevs of physical functions for all of their virtual functions, with commas between", func(value string) error {
		r, err := parseResource(value)
		o.Resources = append(o.Resources, r)
		return err
	})
	if err := f.Parse(args); err != nil {
		return Options{}, err
	}
	switch {
	case f.NArg() > 0:
		return Options{}, fmt.Errorf("arguments: must be none besides flags: got %q", f.Args())
	case len(o.Resources) == 0:
		return Options{}, errors.New("flag -resource: must be given, such as example.com/sriov_ens4=ens4")
	case o.Interval <= 0:
		return Options{}, fmt.Errorf("flag -interval: must be positive: got %s", o.Interval)
	}
	return o, checkUnique(o.Resources)
}

// parseResource reads the value of one -resource flag.
func parseResource(value string) (Resource, error) {
	name, functions, _ := strings.Cut(value, "=")
	r := Resource{Name: name}
	if problems := validation.IsQualifiedName(name); len(problems) > 0 || !strings.Contains(name, "/") {
		return r, fmt.Errorf("name %q: must be a domain and a name, such as example.com/sriov_ens4", name)
	}
	for function := range strings.SplitSeq(functions, ",") {
		switch {
		case function == "" || strings.ContainsRune(function, '/'):
			return r, fmt.Errorf("function %q of %s: must be a PCI address, such as 0000:01:10.0, or the netdev of a physical function", function, name)
		case pciAddress.MatchString(function):
			r.Functions = append(r.Functions, function)
		default:
			r.PhysicalFunctions = append(r.PhysicalFunctions, function)
		}
	}
	return r, nil
}

// checkUnique rejects two resources of one name or with one function, because kubelet would allocate the
// function twice.
func checkUnique(resources []Resource) error {
	owners := map[string]string{}
	for _, r := range resources {
		for _, key := range append([]string{r.Name}, append(r.Functions, r.PhysicalFunctions...)...) {
			if other, ok := owners[key]; ok {
				return fmt.Errorf("flag -resource: %s must be in one resource: is in %s and %s", key, other, r.Name)
			}
			owners[key] = r.Name
		}
	}
	return nil
}
