package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decoder fills structs from nodes and collects what is wrong instead of
// stopping at it.
type decoder struct {
	file     string
	dir      string // of the file: relative folders start there
	lines    []string
	vars     variables
	problems Problems
	notes    []string
	files    []string // that were read beside the file itself
	seen     int      // nodes, aliases counted each time
}

// maxNodes bounds what aliases of aliases can make of a small file.
const maxNodes = 100_000

// failf records a problem.
func (d *decoder) failf(at spot, format string, args ...any) {
	p := Problem{File: d.file, Text: printable(fmt.Sprintf(format, args...))}
	if n := at.node(); n != nil {
		p.Line, p.Column = n.line, n.column
		p.Source, p.mark = at.excerpt(d.lines)
	}
	d.problems = append(d.problems, p)
}

// notef records something that is worth a line in the log and no problem.
func (d *decoder) notef(format string, args ...any) {
	d.notes = append(d.notes, printable(d.file+": "+fmt.Sprintf(format, args...)))
}

// field is what the tags of a struct's field say.
type field struct {
	key    string
	enum   []string
	min    string
	above  string
	secret bool
	path   bool
	index  []int
}

// decodes is implemented by types that read themselves.
type decodes interface {
	decode(d *decoder, at spot, f field)
}

// fields lists what a struct may hold, embedded structs included, in the order
// of the struct.
func fields(t reflect.Type) []field {
	var list []field
	for i := range t.NumField() {
		sf := t.Field(i)
		if sf.Anonymous {
			for _, f := range fields(sf.Type) {
				f.index = append([]int{i}, f.index...)
				list = append(list, f)
			}
			continue
		}
		key := sf.Tag.Get("key")
		if key == "" {
			continue
		}
		f := field{key: key, min: sf.Tag.Get("min"), above: sf.Tag.Get("above"), secret: sf.Tag.Get("secret") != "", path: sf.Tag.Get("path") != "", index: []int{i}}
		if enum := sf.Tag.Get("enum"); enum != "" {
			f.enum = strings.Split(enum, ",")
		}
		list = append(list, f)
	}
	return list
}

func keysOf(list []field) []string {
	keys := make([]string, len(list))
	for i, f := range list {
		keys[i] = f.key
	}
	return keys
}

// value fills v, which is addressable, from what stands at a spot.
func (d *decoder) value(v reflect.Value, at spot, f field) {
	if d.seen++; d.seen > maxNodes {
		if d.seen == maxNodes+1 {
			d.failf(at, "the aliases of this file make more than %d values", maxNodes)
		}
		return
	}
	at.secret = at.secret || f.secret
	if own, ok := reflect.TypeAssert[decodes](v.Addr()); ok {
		own.decode(d, at, f)
		return
	}
	switch {
	case v.Kind() == reflect.Pointer:
		fresh := reflect.New(v.Type().Elem())
		d.value(fresh.Elem(), at, f)
		v.Set(fresh)
	case v.Type() == reflect.TypeFor[time.Time]():
		d.scalar(v, at, f)
	case v.Kind() == reflect.Struct:
		d.fields(v, at, f)
	case v.Kind() == reflect.Map:
		d.entries(v, at, f)
	case v.Kind() == reflect.Slice:
		d.list(v, at, f)
	default:
		d.scalar(v, at, f)
	}
}

// fields fills a struct: every key must be one of its fields.
func (d *decoder) fields(v reflect.Value, at spot, f field) {
	if at.value.kind == kindNull {
		return
	}
	if at.value.kind != kindMap {
		how := ""
		if slices.Contains(keysOf(fields(v.Type())), "enabled") {
			how = fmt.Sprintf("; write %s: {enabled: false} to switch it off", f.key)
		}
		d.failf(at, "%s has to be a map of settings, not %s%s", f.key, at.value.kind, how)
		return
	}
	prefill(v)
	known := fields(v.Type())
	for _, p := range at.value.pairs {
		in := spot{key: p.key, value: p.value, secret: at.secret}
		i := slices.IndexFunc(known, func(k field) bool { return k.key == p.key.text })
		if i < 0 {
			d.unknown(in, v.Type(), known)
			continue
		}
		d.value(v.FieldByIndex(known[i].index), in, known[i])
	}
}

// unknown reports a key that is none, with the nearest that is one, or the place
// to which it belongs.
func (d *decoder) unknown(at spot, t reflect.Type, known []field) {
	key, keys := at.key.text, keysOf(known)
	if place := elsewhere(key, t); place != "" {
		d.failf(at.atKey(), "%q is not a key here; it belongs %s", key, place)
		return
	}
	d.failf(at.atKey(), "unknown key %q (%s)", key, didYouMean(key, keys))
}

// elsewhere says where a key would be right that is wrong in t.
func elsewhere(key string, t reflect.Type) string {
	for _, place := range []struct {
		in  reflect.Type
		say string
	}{
		{reflect.TypeFor[Policy](), "to a server, or to defaults:"},
		{reflect.TypeFor[Server](), "to a server, under servers:"},
		{reflect.TypeFor[file](), "to the top of the file"},
		{reflect.TypeFor[TLS](), "under tls:"},
		{reflect.TypeFor[Auth](), "under auth:"},
		{reflect.TypeFor[Issuer](), "to an issuer, under auth:"},
		{reflect.TypeFor[Ledger](), "under ledger:"},
		{reflect.TypeFor[Orchestrate](), "under orchestrate:"},
		{reflect.TypeFor[RAPServer](), "under rap: of a server"},
	} {
		if place.in != t && slices.Contains(keysOf(fields(place.in)), key) {
			return place.say
		}
	}
	return ""
}

// entries fills a map. Its keys are the user's.
func (d *decoder) entries(v reflect.Value, at spot, f field) {
	if at.value.kind == kindNull {
		return
	}
	if at.value.kind != kindMap {
		d.failf(at, "%s has to be a map, not %s", f.key, at.value.kind)
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(at.value.pairs)))
	for _, p := range at.value.pairs {
		fresh := reflect.New(v.Type().Elem()).Elem()
		d.value(fresh, spot{key: p.key, value: p.value, secret: at.secret}, field{key: p.key.text, secret: f.secret})
		v.SetMapIndex(reflect.ValueOf(p.key.text), fresh)
	}
}

// list fills a slice. One text or number where a list of them is wanted will do.
func (d *decoder) list(v reflect.Value, at spot, f field) {
	n := at.value
	switch {
	case n.kind == kindNull:
		return
	case n.kind == kindString && v.Type().Elem().Kind() == reflect.String, n.kind == kindNumber && v.Type().Elem().Kind() == reflect.Int:
		n = &node{kind: kindList, items: []*node{n}}
	case n.kind != kindList:
		d.failf(at, "%s has to be a list, not %s", f.key, n.kind)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	for i, item := range n.items {
		d.value(v.Index(i), spot{key: at.key, value: item, secret: at.secret}, field{key: f.key, secret: f.secret, path: f.path})
	}
}

// text fills a text; shown is what a message says of it.
func (d *decoder) text(to *string, at spot, f field, shown string) bool {
	text, err := d.vars.expand(at.value.text)
	if err != nil {
		d.failf(at, "%s: %v", f.key, err)
		return false
	}
	if len(f.enum) > 0 && !slices.Contains(f.enum, text) {
		d.failf(at, "%s cannot be %s (%s)", f.key, shown, oneOf(text, f.enum))
		return false
	}
	if f.path {
		text = d.vars.folder(text, d.dir)
	}
	*to = text
	return true
}

// scalar fills a text, number, truth or time, and reports whether it could.
func (d *decoder) scalar(v reflect.Value, at spot, f field) bool {
	n := at.value
	if n.kind > kindBool {
		d.failf(at, "%s has to be one value, not %s", f.key, n.kind)
		return false
	}
	shown := strconv.Quote(n.text)
	if at.secret {
		shown = "this value"
	}
	switch to := v.Addr().Interface().(type) {
	case *string:
		return d.text(to, at, f, shown)
	case *bool:
		if n.kind != kindBool {
			d.failf(at, "%s has to be true or false, not %s", f.key, shown)
			return false
		}
		*to = strings.EqualFold(n.text, "true")
	case *int:
		i, err := strconv.Atoi(n.text)
		if least, _ := strconv.Atoi(f.min); err != nil || i < least {
			d.failf(at, "%s has to be a whole number from %d on, not %s", f.key, least, shown)
			return false
		}
		*to = i
	case *float64:
		number, err := parseNumber(n.text)
		if err != nil || f.above != "" && number == 0 {
			d.failf(at, "%s has to be a number above 0, not %s", f.key, shown)
			return false
		}
		*to = number
	case *Size:
		size, err := parseSize(n.text)
		if err != nil {
			d.failf(at, "%s: %s is not a size (%v)", f.key, shown, err)
			return false
		}
		*to = size
	case *time.Time:
		text, err := d.vars.expand(n.text)
		if err == nil {
			*to, err = parseDate(text)
		}
		if err != nil {
			d.failf(at, "%s: %s is not a date (%v)", f.key, shown, err)
			return false
		}
	case *time.Duration:
		t, err := parseDuration(n)
		if err != nil {
			d.failf(at, "%s: %s is not a time (%v)", f.key, shown, err)
			return false
		}
		if f.above != "" && t <= 0 {
			d.failf(at, "%s has to be more than 0, not %s", f.key, shown)
			return false
		}
		if t < 0 {
			d.failf(at, "%s cannot be less than 0, and is %s", f.key, shown)
			return false
		}
		*to = t
	default:
		panic("config: a field of an unknown type: " + f.key)
	}
	return true
}

// oneOf says which values there are, the nearest first if one is near.
func oneOf(text string, enum []string) string {
	if near := nearest(text, enum); near != "" && len(text) > 2 {
		return fmt.Sprintf("did you mean %q? It is one of %s", near, strings.Join(enum, ", "))
	}
	return "it is one of " + strings.Join(enum, ", ")
}

// parseDuration reads a time as Go writes it; a bare 0 needs no unit.
func parseDuration(n *node) (time.Duration, error) {
	t, err := time.ParseDuration(n.text)
	if err == nil {
		return t, nil
	}
	if _, number := strconv.ParseFloat(n.text, 64); number == nil {
		return 0, fmt.Errorf("it has no unit: write %ss for seconds, %sms or %sm", n.text, n.text, n.text)
	}
	return 0, fmt.Errorf(`write it as "500ms", "2s", "1m30s" or "1h"`)
}
