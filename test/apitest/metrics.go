// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/patchbay-cni/patchbay/test/source"
)

// family matches the line of a scrape that has name and type of a metric.
var family = regexp.MustCompile(`(?m)^# TYPE (patchbay_\w+) (\w+)$`)

// CheckMetricsPage returns an error if a scrape of a program has a metric of Patchbay that its table in
// docs/reference/metrics.md lacks, or has with another type.
func CheckMetricsPage(program, scrape string) error {
	path, err := source.Path("docs", "reference", "metrics.md")
	if err != nil {
		return err
	}
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the page of metrics: %w", err)
	}
	_, table, _ := strings.Cut(string(page), "\n## "+program+"\n")
	table, _, _ = strings.Cut(table, "\n## ")
	found := family.FindAllStringSubmatch(scrape, -1)
	if len(found) == 0 {
		return fmt.Errorf("scrape of %s: must have metrics of Patchbay: got %s", program, scrape)
	}
	for _, m := range found {
		if !strings.Contains(table, fmt.Sprintf("| `%s` | %s |", m[1], m[2])) {
			return fmt.Errorf("docs/reference/metrics.md: must have the %s %s of %s: run make generate", m[2], m[1], program)
		}
	}
	return nil
}
