// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A message that is cut within a character would be stored as another one, and so written again with
// each reconciliation.
func TestLongMessagesAreText(t *testing.T) {
	t.Parallel()
	c := newCondition("Placed", true, "AsExpected", "."+strings.Repeat("ä", maxMessage))
	if got := c.Message; !utf8.ValidString(got) || len(got) > maxMessage {
		t.Errorf("got %d bytes, valid %t", len(got), utf8.ValidString(got))
	}
}
