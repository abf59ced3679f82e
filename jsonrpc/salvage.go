package jsonrpc

// Salvage reads what the two ends of a message tell about it when the message
// itself cannot be had: it was over the line bound, or is not valid JSON. prefix
// is its beginning, tail its end; either may be nil or all of it, and they may
// overlap. With the answer an oversized message can fail its call instead of the
// connection (MCP-G3).
//
// Both ends matter: some implementations write the id first, others write
// {"result":…,"jsonrpc":"2.0","id":7}.
//
// ok means that an id was found and that there was no other; kind is Request or
// Response then, or Unknown when the members that would tell lie in between.
// Without an id kind can still be Response or, when the whole object was seen,
// Notification. The tail is read backwards, which is exact for valid JSON; text
// that is not can mislead it, so an id found here may fail one call of the peer
// that sent it and must be trusted with no more.
func Salvage(prefix, tail []byte) (id ID, kind Kind, ok bool) {
	var s salvaged
	complete := s.forward(prefix)
	if !complete {
		complete = s.backward(tail)
	}
	hasID := !s.id.IsZero() && !s.ambiguous
	switch {
	case s.seen&fieldMethod != 0 && s.seen&(fieldResult|fieldError) != 0:
		kind = Unknown
	case s.seen&fieldMethod != 0 && s.seen&fieldID != 0:
		kind = Request
	case s.seen&fieldMethod != 0 && complete:
		kind = Notification
	case s.seen&(fieldResult|fieldError) != 0:
		kind = Response
	}
	if !hasID {
		return ID{}, kind, false
	}
	return s.id, kind, true
}

// SalvageID is [Salvage] for a beginning alone.
func SalvageID(prefix []byte) (id ID, kind Kind, ok bool) { return Salvage(prefix, nil) }

type salvaged struct {
	seen      field
	id        ID
	ambiguous bool // two ids that differ, or one that is none
}

// note takes a member whose name is known; value is nil when it was cut off.
func (s *salvaged) note(quoted, value []byte) {
	f, exact := fieldOf(quoted)
	if !exact {
		return
	}
	s.seen |= f
	if f != fieldID || value == nil {
		return
	}
	id, err := ParseID(value)
	if err != nil || !s.id.IsZero() && s.id != id {
		s.ambiguous = true
		return
	}
	s.id = id
}

// forward reads members from the beginning until the text breaks off, and reports
// whether it saw the object end.
func (s *salvaged) forward(b []byte) bool {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return false
	}
	i = skipSpace(b, i+1)
	for i < len(b) && b[i] == '"' {
		end, ok := skipString(b, i)
		if !ok {
			return false
		}
		name := b[i:end]
		if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
			return false
		}
		i = skipSpace(b, i+1)
		if end, ok = skipValue(b, i); !ok || end == i {
			s.note(name, nil)
			return false
		}
		s.note(name, b[i:end])
		if i = skipSpace(b, end); i < len(b) && b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	return i < len(b) && b[i] == '}'
}

// backward reads members from the end until the text breaks off, and reports
// whether it saw the object begin. In what follows an offset i means that b[:i]
// is still unread.
func (s *salvaged) backward(b []byte) bool {
	i := backSpace(b, len(b))
	if i == 0 || b[i-1] != '}' {
		return false
	}
	i = backSpace(b, i-1)
	for i > 0 && b[i-1] != '{' {
		end := i
		start, ok := backValue(b, end)
		if !ok || start == end {
			return false
		}
		if i = backSpace(b, start); i == 0 || b[i-1] != ':' {
			return false
		}
		nameEnd := backSpace(b, i-1)
		if nameEnd == 0 || b[nameEnd-1] != '"' {
			return false
		}
		nameStart, ok := backString(b, nameEnd)
		if !ok {
			return false
		}
		if i = backSpace(b, nameStart); i == 0 || b[i-1] != ',' && b[i-1] != '{' {
			return false
		}
		s.note(b[nameStart:nameEnd], b[start:end])
		if b[i-1] == ',' {
			i = backSpace(b, i-1)
		}
	}
	return i > 0
}

func backSpace(b []byte, i int) int {
	for i > 0 && isSpace(b[i-1]) {
		i--
	}
	return i
}

// backValue returns the offset at which the value that ends at i starts, and
// false when it starts before b.
func backValue(b []byte, i int) (int, bool) {
	if i == 0 {
		return 0, false
	}
	switch b[i-1] {
	case '"':
		return backString(b, i)
	case '}', ']':
		return backContainer(b, i)
	}
	for i > 0 {
		switch c := b[i-1]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == 'E', c == '+', c == '-', c == '.':
			i--
		default:
			return i, true
		}
	}
	return 0, false
}

// backString finds the opening quote of the string whose closing quote is
// b[i-1]: the nearest quote before it that is not escaped. The byte before an
// opening quote is never a backslash.
func backString(b []byte, i int) (int, bool) {
	for i--; i > 0; i-- {
		if b[i-1] != '"' {
			continue
		}
		k := i - 1
		for k > 0 && b[k-1] == '\\' {
			k--
		}
		if (i-1-k)%2 == 0 {
			// With backslashes up to the cut we cannot know how many there were.
			return i - 1, k > 0 || i == 1
		}
		i = k + 1
	}
	return 0, false
}

func backContainer(b []byte, i int) (int, bool) {
	depth := 0
	for i > 0 {
		switch structural[b[i-1]] {
		case byteQuote:
			start, ok := backString(b, i)
			if !ok {
				return 0, false
			}
			i = start
			continue
		case byteClose:
			depth++
		case byteOpen:
			if depth--; depth == 0 {
				return i - 1, true
			}
		}
		i--
	}
	return 0, false
}
