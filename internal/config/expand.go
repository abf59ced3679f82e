package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// variables expands ${NAME} in texts.
type variables struct {
	getenv func(string) string
	editor bool // an editor's file: its own forms too, and what is not known stays
	left   []string
}

// expand replaces ${NAME} and ${NAME:-otherwise}; $${ is a literal ${. In
// belay.yaml a variable that is not set is an error that names it, never a
// value. Names that begin with BELAY_ are left for whoever starts the program:
// hooks get theirs at the Stop.
func (v *variables) expand(text string) (string, error) {
	if !strings.Contains(text, "${") {
		return text, nil
	}
	var b strings.Builder
	for {
		i := strings.Index(text, "${")
		if i < 0 {
			b.WriteString(text)
			return b.String(), nil
		}
		if i > 0 && text[i-1] == '$' {
			b.WriteString(text[:i-1] + "${")
			text = text[i+2:]
			continue
		}
		name, rest, ok := strings.Cut(text[i+2:], "}")
		if !ok {
			if v.editor {
				b.WriteString(text)
				return b.String(), nil
			}
			return "", fmt.Errorf("a ${ without its } (write $${ for the characters themselves)")
		}
		value, err := v.lookup(name)
		if err != nil {
			return "", err
		}
		b.WriteString(text[:i] + value)
		text = rest
	}
}

func (v *variables) lookup(expr string) (string, error) {
	name, otherwise, has := strings.Cut(expr, ":-")
	if v.editor {
		switch {
		case strings.HasPrefix(name, "env:"):
			name = name[len("env:"):]
		case name == "userHome":
			name = "HOME"
		case name == "pathSeparator" || name == "/":
			return string(filepath.Separator), nil
		}
	}
	if strings.HasPrefix(name, "BELAY_") {
		return "${" + expr + "}", nil
	}
	good := name != "" && strings.Trim(name, nameChars) == "" && !strings.Contains(name, "-")
	if good {
		switch value := v.getenv(name); {
		case value != "":
			return value, nil
		case has:
			return otherwise, nil
		}
	}
	switch {
	case v.editor:
		v.left = append(v.left, expr)
		return "${" + expr + "}", nil
	case !good:
		return "", errors.New("what stands in ${…} is not the name of a variable (write $${ for the characters themselves)") // and may be part of a password
	}
	return "", fmt.Errorf("the environment variable %s is not set (write ${%s:-} if it may be empty)", name, name)
}

// folder makes a folder absolute: ~ is the user's home, anything relative
// starts at base.
func (v *variables) folder(dir, base string) string {
	switch home := v.getenv("HOME"); {
	case dir == "":
		return ""
	case home != "" && (dir == "~" || strings.HasPrefix(dir, "~/")):
		return filepath.Join(home, dir[1:])
	case filepath.IsAbs(dir):
		return dir
	}
	return filepath.Join(base, dir)
}

// words splits a line as a shell does: blanks part words, quotes and backslashes
// keep them together. Nothing is expanded, and no operators are known.
func words(line string) ([]string, error) {
	var list []string
	var word strings.Builder
	var quote rune
	in, escaped := false, false
	for _, r := range line {
		switch {
		case escaped:
			if quote == '"' && r != '"' && r != '\\' && r != '$' && r != '`' {
				word.WriteRune('\\')
			}
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, in = true, true
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteRune(r)
			}
		case r == '"' || r == '\'':
			quote, in = r, true
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			if in {
				list = append(list, word.String())
				word.Reset()
			}
			in = false
		default:
			word.WriteRune(r)
			in = true
		}
	}
	switch {
	case quote != 0:
		return nil, fmt.Errorf("a quote %c that is not closed", quote)
	case escaped:
		return nil, fmt.Errorf("a backslash at the end")
	case in:
		list = append(list, word.String())
	}
	return list, nil
}
