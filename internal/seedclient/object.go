package seedclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// object is a JSON object whose members are asked for one by one; what is wrong
// with them is collected.
type object struct {
	raw   []byte
	keys  map[string]json.RawMessage
	found []error
}

// parse reads exactly one object.
func parse(raw []byte) (*object, error) {
	o := &object{raw: raw}
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&o.keys); err != nil {
		return nil, fmt.Errorf("the answer is no JSON object: %w: %.200s", err, raw)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) || o.keys == nil {
		return nil, fmt.Errorf("the answer is not one JSON object: %.200s", raw)
	}
	return o, nil
}

func (o *object) wrong(key, what string) {
	o.found = append(o.found, fmt.Errorf("%s: %s", key, what))
}

func (o *object) err() error {
	if len(o.found) == 0 {
		return nil
	}
	return fmt.Errorf("%w in %.500s", errors.Join(o.found...), o.raw)
}

// member reads a key that has to be there, in the form of into.
func (o *object) member(key, form string, into any) {
	raw, there := o.keys[key]
	if !there {
		o.wrong(key, "missing")
		return
	}
	if string(raw) == "null" {
		o.wrong(key, "null, not "+form)
		return
	}
	if err := json.Unmarshal(raw, into); err != nil {
		o.wrong(key, "not "+form)
	}
}

func (o *object) text(key string) (s string) {
	o.member(key, "a string", &s)
	return s
}

func (o *object) truth(key string) (b bool) {
	o.member(key, "a boolean", &b)
	return b
}

// float is a number that readers which tell the two apart take for a float.
func (o *object) float(key string) (f float64) {
	o.member(key, "a number", &f)
	if raw := o.keys[key]; len(raw) > 0 && !bytes.ContainsAny(raw, ".eE") {
		o.wrong(key, "an integer, not a float")
	}
	return f
}

func (o *object) textOrNull(key string) *string {
	raw, there := o.keys[key]
	if there && string(raw) == "null" {
		return nil
	}
	s := o.text(key)
	return &s
}
