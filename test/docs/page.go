// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/test/source"
)

// Page is a Markdown page with its fenced blocks.
type Page struct {
	// Path is named from the repository's root.
	Path   string
	Blocks []Block
	// Headings has the line of each heading, without its marks.
	Headings map[string]int
}

// Block is a fenced block.
type Block struct {
	// Language is what follows the fence; commands have none.
	Language string
	// Line is the number of its first line in the page.
	Line int
	// Lines are without the indentation of the list that the block may be in.
	Lines []string
}

// Command is what a reader types.
type Command struct {
	Line int
	Text string
	// Output is what the page says that the command prints. It is compared unless it is empty.
	Output []string
}

// ErrNoCommand says that a block has text where a command must be.
var ErrNoCommand = errors.New("must begin with a command")

// ErrOpenFence says that a block has no end.
var ErrOpenFence = errors.New("must end with a fence")

// ErrNotOneBlock is the error when no block of a page, or more than one, has a text.
var ErrNotOneBlock = errors.New("must be in one block")

const (
	fence  = "```"
	prompt = "$ "
)

// Read parses a page, which is named from the repository's root.
func Read(path string) (Page, error) {
	file, err := source.Path(path)
	if err != nil {
		return Page{}, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return Page{}, fmt.Errorf("read page: %w", err)
	}
	return Parse(path, string(text))
}

// Parse finds the blocks of a page.
func Parse(path, text string) (Page, error) {
	page := Page{Path: path, Headings: map[string]int{}}
	var open *Block
	indent := ""
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case strings.HasPrefix(trimmed, fence) && open == nil:
			indent = line[:len(line)-len(trimmed)]
			open = &Block{Language: strings.TrimPrefix(trimmed, fence), Line: i + 2}
		case strings.HasPrefix(trimmed, fence):
			page.Blocks = append(page.Blocks, *open)
			open = nil
		case open != nil:
			open.Lines = append(open.Lines, strings.TrimPrefix(line, indent))
		case strings.HasPrefix(line, "#"):
			page.Headings[strings.TrimLeft(line, "# ")] = i + 1
		}
	}
	if open != nil {
		return Page{}, fmt.Errorf("%s:%d: the block %w", path, open.Line, ErrOpenFence)
	}
	return page, nil
}

// Block returns the block that has a text. No other block may have it.
func (p *Page) Block(text string) (Block, error) {
	found := slices.DeleteFunc(slices.Clone(p.Blocks), func(b Block) bool { return !strings.Contains(strings.Join(b.Lines, "\n"), text) })
	if len(found) != 1 {
		return Block{}, fmt.Errorf("%s: %q %w: %d have it", p.Path, text, ErrNotOneBlock, len(found))
	}
	return found[0], nil
}

// FirstLine names a block in tables.
func (b *Block) FirstLine() string {
	if len(b.Lines) == 0 {
		return ""
	}
	return b.Lines[0]
}

// Commands returns the commands of a block. If one of its lines has a prompt, the lines without one are
// output. If not, all are commands, apart from comments.
func (b *Block) Commands() ([]Command, error) {
	prompts := slices.ContainsFunc(b.Lines, func(line string) bool { return strings.HasPrefix(line, prompt) })
	var all []Command
	for i := 0; i < len(b.Lines); i++ {
		line, typed := b.Lines[i], !prompts
		if prompts {
			line, typed = strings.CutPrefix(line, prompt)
		}
		switch {
		case typed && strings.HasPrefix(line, "#"), typed && line == "":
		case typed:
			c := Command{Line: b.Line + i, Text: line}
			for !complete(c.Text) && i+1 < len(b.Lines) {
				i++
				c.Text += "\n" + b.Lines[i]
			}
			all = append(all, c)
		case len(all) == 0:
			return nil, fmt.Errorf("%d: %q %w", b.Line+i, line, ErrNoCommand)
		default:
			last := &all[len(all)-1]
			last.Output = append(last.Output, line)
		}
	}
	return all, nil
}

var (
	// assignment is a line that only sets a variable, for the next command.
	assignment = regexp.MustCompile(`^[A-Z_]+=(\$\(.*\)|\S*)$`)
	// hereDocument is the beginning of one, with the word that ends it.
	hereDocument = regexp.MustCompile(`<<'?(\w+)'?`)
)

// complete reports whether the shell would run the text, or would wait for another line.
func complete(text string) bool {
	lines := strings.Split(text, "\n")
	last := lines[len(lines)-1]
	if begin := hereDocument.FindStringSubmatch(lines[0]); begin != nil {
		return last == begin[1]
	}
	if strings.HasSuffix(last, `\`) || assignment.MatchString(last) {
		return false
	}
	var quote rune
	for i, r := range text {
		switch {
		case quote == 0 && r == '#' && (i == 0 || text[i-1] == ' '):
			return true // the rest of the line is a comment
		case quote == 0 && (r == '\'' || r == '"'):
			quote = r
		case quote == r:
			quote = 0
		}
	}
	return quote == 0
}
