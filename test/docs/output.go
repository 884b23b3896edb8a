// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"slices"
	"strings"
)

// anything stands for any text in a line, and alone in a line for any lines.
const anything = "…"

// random is the alphabet of the names that Kubernetes makes.
const random = `[bcdfghjklmnpqrstvwxz2456789]`

// varying are the texts that differ from run to run: each matches every other text of its kind.
var varying = []string{
	`-` + random + `{8,10}-` + random + `{5}`,     // the end of the name of a Deployment's Pod
	`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`, // a UID
	`[0-9a-f]{16}`,                    // a token, and the end of a DanmEp's name
	`(?:[0-9a-f]{2}:){5}[0-9a-f]{2}`,  // a MAC address
	`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`, // a time
	`node-\d+`,                        // a node that the scheduler selects
}

// age is a column of its own, so that it does not match a number in a message.
var age = regexp.MustCompile(`^(?:\d+[smhd]){1,2}$`)

// Expected is the output that a page has for a command.
type Expected struct {
	lines    []string
	patterns []*regexp.Regexp // one per line, nil for any lines
}

// Expect reads the output of a page. Fields are separated by runs of blanks. The further patterns vary on
// this page.
func Expect(lines []string, further ...string) Expected {
	e := Expected{lines: lines}
	patterns := slices.Concat(further, varying) // what a page says of its numbers comes first
	vary := regexp.MustCompile(strings.Join(append(slices.Clone(patterns), anything), "|"))
	single := compile(patterns)
	for _, line := range lines {
		if strings.TrimSpace(line) == anything {
			e.patterns = append(e.patterns, nil)
			continue
		}
		var fields []string
		for field := range strings.FieldsSeq(line) {
			fields = append(fields, fieldPattern(field, vary, single))
		}
		e.patterns = append(e.patterns, regexp.MustCompile(`^\s*`+strings.Join(fields, `\s+`)+`\s*$`))
	}
	return e
}

func compile(patterns []string) []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, p := range patterns {
		all = append(all, regexp.MustCompile("^(?:"+p+")$"))
	}
	return all
}

// fieldPattern is the pattern for a field: itself, apart from what varies in it.
func fieldPattern(field string, vary *regexp.Regexp, single []*regexp.Regexp) string {
	if age.MatchString(field) {
		return `(?:\d+[smhd]){1,2}`
	}
	var b strings.Builder
	for {
		at := vary.FindStringIndex(field)
		if at == nil {
			return b.String() + regexp.QuoteMeta(field)
		}
		b.WriteString(regexp.QuoteMeta(field[:at[0]]))
		b.WriteString(kindOf(field[at[0]:at[1]], single))
		field = field[at[1]:]
	}
}

// kindOf is the pattern that a text is one of.
func kindOf(text string, single []*regexp.Regexp) string {
	for _, p := range single {
		if p.MatchString(text) {
			return strings.Trim(p.String(), "^$")
		}
	}
	return ".*"
}

// Diff compares the output with what a command has printed. It is empty if they match. Otherwise it has all
// lines: marked with - if they are missing, with + if they are not expected, and with … if the page has any
// lines there.
func (e Expected) Diff(printed string) string {
	var got []string
	if printed = strings.TrimRight(printed, "\n"); printed != "" {
		got = strings.Split(printed, "\n")
	}
	cost := e.costs(got)
	if cost[0][0] == 0 {
		return ""
	}
	var b strings.Builder
	for i, j := 0, 0; i < len(e.lines) || j < len(got); {
		switch {
		case i < len(e.lines) && e.patterns[i] == nil && cost[i][j] == cost[i+1][j]:
			b.WriteString("    " + e.lines[i] + "\n")
			i++
		case i < len(e.lines) && e.patterns[i] == nil && j < len(got):
			b.WriteString("  " + anything + " " + got[j] + "\n")
			j++
		case i < len(e.lines) && j < len(got) && e.patterns[i].MatchString(got[j]):
			b.WriteString("    " + got[j] + "\n")
			i, j = i+1, j+1
		case i < len(e.lines) && cost[i][j] == cost[i+1][j]+1:
			b.WriteString("  - " + e.lines[i] + "\n")
			i++
		default:
			b.WriteString("  + " + got[j] + "\n")
			j++
		}
	}
	return b.String()
}

// costs has for each place in both texts how many lines from there on are missing or not expected.
func (e Expected) costs(got []string) [][]int {
	cost := make([][]int, len(e.lines)+1)
	for i := len(e.lines); i >= 0; i-- {
		cost[i] = make([]int, len(got)+1)
		for j := len(got); j >= 0; j-- {
			switch {
			case i == len(e.lines):
				cost[i][j] = len(got) - j
			case e.patterns[i] == nil && j == len(got):
				cost[i][j] = cost[i+1][j]
			case e.patterns[i] == nil:
				cost[i][j] = min(cost[i+1][j], cost[i][j+1])
			case j == len(got):
				cost[i][j] = cost[i+1][j] + 1
			case e.patterns[i].MatchString(got[j]):
				cost[i][j] = cost[i+1][j+1]
			default:
				cost[i][j] = 1 + min(cost[i+1][j], cost[i][j+1])
			}
		}
	}
	return cost
}
