// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Row is one contender.
type Row struct {
	// Name says who and how.
	Name string
	// Columns are its figures, in the order of Table.Columns. The first one decides.
	Columns []Series
}

// Table compares contenders. The first row is ours, the others are its peers.
type Table struct {
	// Title says what was done, how often and on what.
	Title string
	// Columns are the headings, with units.
	Columns []string
	// Alone says that the rows are no peers of each other: no ratio is printed.
	Alone bool
	// LessIsBetter tells times from rates, for the first column.
	LessIsBetter bool
	// Rows are the contenders.
	Rows []Row
}

// Write prints the table. Each peer's line ends with how many times better ours is.
func (t Table) Write(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s\n%s\n", t.Title, Machine()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	headings := append([]string{""}, t.Columns...)
	if !t.Alone {
		headings = append(headings, "ours is better by")
	}
	fmt.Fprintln(tabs, strings.Join(headings, "\t"))
	for i, row := range t.Rows {
		cells := []string{row.Name}
		for _, s := range row.Columns {
			cells = append(cells, s.String())
		}
		fmt.Fprintf(tabs, "%s\t%s\n", strings.Join(cells, "\t"), t.ratio(i))
	}
	if err := tabs.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// ratio compares medians; there is none of a contender that measured nothing.
func (t Table) ratio(i int) string {
	ours, theirs := t.Rows[0].Columns[0].Median(), t.Rows[i].Columns[0].Median()
	if t.Alone || i == 0 || ours == 0 || theirs == 0 {
		return ""
	}
	if t.LessIsBetter {
		ours, theirs = theirs, ours
	}
	return Figure(ours/theirs) + "×"
}
