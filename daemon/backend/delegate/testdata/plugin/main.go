// SPDX-License-Identifier: Apache-2.0

// Command plugin is a CNI plugin that says where it runs: as its interface's
// name, the first line of /where in its root folder.
package main

import (
	"fmt"
	"os"
)

func main() {
	where, err := os.ReadFile("/where")
	if err != nil {
		fmt.Printf(`{"cniVersion":"1.0.0","code":5,"msg":%q}`, err.Error())
		os.Exit(1)
	}
	if os.Getenv("CNI_COMMAND") == "ADD" {
		fmt.Printf(`{"cniVersion":"1.0.0","interfaces":[{"name":%q}]}`, string(where))
	}
}
