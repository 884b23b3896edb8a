// SPDX-License-Identifier: Apache-2.0

// Command shape measures how the code is laid out, and prints a table with the limits that the
// project keeps. It exits with 1 if a limit is passed. Generated files, tests and folders named
// testdata do not count.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	list := flag.Bool("list", false, "list what each figure counts")
	flag.Parse()
	code, err := read(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "shape:", err)
		os.Exit(2)
	}
	passed := true
	for _, f := range figures(code) {
		verdict := "ok"
		if f.value > f.limit {
			verdict, passed = "over", false
		}
		fmt.Printf("%-58s %6.4g  limit %4g  %s\n", f.name, f.value, f.limit, verdict)
		if *list {
			for _, what := range f.found {
				fmt.Printf("    %s\n", what)
			}
		}
	}
	if !passed {
		os.Exit(1)
	}
}
