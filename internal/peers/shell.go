package peers

import "strings"

func isShell(name string) bool {
	switch name {
	case "sh", "bash", "zsh", "dash", "ash", "ksh", "mksh", "fish", "busybox", "pwsh", "powershell":
		return true
	}
	return false
}

// shellLine finds the program text of `sh -c TEXT`, also as -lc, -ec and so on.
func shellLine(args []string) (string, bool) {
	for i, arg := range args {
		if arg == "--" || !strings.HasPrefix(arg, "-") && arg != "sh" && arg != "ash" {
			return "", false
		}
		short := strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--")
		if short && strings.HasSuffix(arg, "c") || strings.EqualFold(arg, "-Command") || arg == "--command" {
			if i+1 < len(args) {
				return args[i+1], true
			}
		}
	}
	return "", false
}

// shellCommands splits a line of shell into its simple commands. It knows
// quotes, comments and separators, no expansion: what it takes for a command
// too much only weakens a verdict.
func shellCommands(line string) [][]string {
	var all [][]string
	var words []string
	end := func() {
		for len(words) > 0 && (strings.Contains(words[0], "=") && !strings.HasPrefix(words[0], "-") || reserved[words[0]]) {
			words = words[1:]
		}
		if len(words) > 0 && len(all) < maxCommands {
			all = append(all, words)
		}
		words = nil
	}
	for _, t := range shellTokens(line) {
		if t.separator {
			end()
		} else if len(words) < maxArgs {
			words = append(words, t.text)
		}
	}
	end()
	return all
}

var reserved = map[string]bool{
	"if": true, "then": true, "else": true, "elif": true, "fi": true, "while": true, "until": true, "do": true,
	"done": true, "!": true, "{": true, "}": true, "for": true, "case": true, "in": true, "esac": true, "function": true,
}

// shellWords splits a line into words, whatever separates commands in it.
func shellWords(line string) []string {
	var words []string
	for _, t := range shellTokens(line) {
		if !t.separator {
			words = append(words, t.text)
		}
	}
	return words
}

type shellToken struct {
	text      string
	separator bool // ; | & newline ( ) $( `: a new command may begin
}

const maxShell = 64 << 10 // bytes of program text that are looked at

func shellTokens(line string) []shellToken {
	line = line[:min(len(line), maxShell)]
	var tokens []shellToken
	var word strings.Builder
	inWord := false
	flush := func() {
		if inWord {
			tokens = append(tokens, shellToken{text: word.String()})
		}
		word.Reset()
		inWord = false
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t', '\r':
			flush()
		case ';', '|', '&', '\n', '(', ')', '`':
			flush()
			tokens = append(tokens, shellToken{separator: true})
		case '#':
			if inWord {
				word.WriteByte(c)
				continue
			}
			for i < len(line) && line[i] != '\n' {
				i++
			}
			i-- // the line break separates
		case '\'':
			inWord = true
			for i++; i < len(line) && line[i] != '\''; i++ {
				word.WriteByte(line[i])
			}
		case '"':
			inWord = true
			for i++; i < len(line) && line[i] != '"'; i++ {
				if line[i] == '\\' && i+1 < len(line) {
					i++
				}
				word.WriteByte(line[i])
			}
		case '\\':
			if i++; i < len(line) && line[i] != '\n' {
				inWord = true
				word.WriteByte(line[i])
			}
		default:
			inWord = true
			word.WriteByte(c)
		}
	}
	flush()
	return tokens
}
