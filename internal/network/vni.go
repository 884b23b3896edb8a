// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// VNIRange is a range of VLAN or VXLAN IDs, both ends included.
type VNIRange struct{ First, Last int }

// VNIRanges are ranges in the order of the TenantConfig.
type VNIRanges []VNIRange

// String returns the ranges in the format of a TenantConfig, such as "1000-2000,2500".
func (r VNIRanges) String() string {
	parts := make([]string, len(r))
	for i, v := range r {
		parts[i] = strconv.Itoa(v.First)
		if v.Last != v.First {
			parts[i] += "-" + strconv.Itoa(v.Last)
		}
	}
	return strings.Join(parts, ",")
}

// Contains reports whether the ID is in one of the ranges.
func (r VNIRanges) Contains(id int) bool {
	for _, v := range r {
		if v.First <= id && id <= v.Last {
			return true
		}
	}
	return false
}

// Overlaps reports whether an ID is in both r and o.
func (r VNIRanges) Overlaps(o VNIRanges) bool {
	for _, a := range r {
		for _, b := range o {
			if a.First <= b.Last && b.First <= a.Last {
				return true
			}
		}
	}
	return false
}

// maxVNIRange bounds the cost of the CEL rules.
const maxVNIRange = 256

var vniRange = regexp.MustCompile(`^[0-9]{1,8}(-[0-9]{1,8})?(,[0-9]{1,8}(-[0-9]{1,8})?)*$`)

var (
	errVNISyntax = errors.New(`must be a list of IDs and ranges without white space, such as "1000-2000,2500"`)
	errVNIBounds = errors.New("must have IDs in range: use 1 to 4094 for vlan, 1 to 16777214 for vxlan")
	errVNIOrder  = errors.New("must not have a range that ends before it begins: write the lower ID first")
)

// parseVNIRanges parses a list such as "1000-2000,2500" of IDs from 1 to limit.
func parseVNIRanges(text string, limit int) (VNIRanges, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxVNIRange {
		return nil, fmt.Errorf("must have at most %d characters: got %d", maxVNIRange, len(text))
	}
	if !vniRange.MatchString(text) {
		return nil, errVNISyntax
	}
	var ranges VNIRanges
	for part := range strings.SplitSeq(text, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		// Neither can fail: at most eight digits.
		first, _ := strconv.Atoi(lo)
		last, _ := strconv.Atoi(hi)
		switch {
		case first < 1 || last < 1 || first > limit || last > limit:
			return nil, errVNIBounds
		case last < first:
			return nil, errVNIOrder
		}
		ranges = append(ranges, VNIRange{First: first, Last: last})
	}
	return ranges, nil
}
