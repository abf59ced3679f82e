package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes.
type Size int64

// units of a Size; the longer names first, since some end in others.
var units = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// UnmarshalText reads a size as the file has it, for flags.
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = parseSize(string(text))
	return err
}

// String is the number of bytes, as a size that can be read again.
func (s Size) String() string { return strconv.FormatInt(int64(s), 10) + "B" }

// parseSize reads "1GiB", "1.5 GB", "100000B"; a bare 0 needs no unit.
func parseSize(text string) (Size, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := parseNumber(strings.TrimSpace(number))
		if err != nil || n*u.bytes >= 1<<62 {
			return 0, fmt.Errorf(`write it as "500MB", "1GiB" or "1.5TiB"`)
		}
		return Size(n * u.bytes), nil
	}
	switch n, err := parseNumber(text); {
	case err != nil:
		return 0, fmt.Errorf(`write it as "500MB", "1GiB" or "1.5TiB"`)
	case n == 0:
		return 0, nil
	}
	return 0, fmt.Errorf("it has no unit: write %sB, %sMiB or %sGiB", text, text, text)
}

// parseNumber reads what is a number and not less than 0.
func parseNumber(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || n < 0 || math.Signbit(n) || strings.ContainsAny(text, "xXpP_") {
		return 0, fmt.Errorf("not a number from 0 on")
	}
	return n, nil
}

// parseDate reads a day, which means its first moment in UTC, or a moment as RFC
// 3339 writes it.
func parseDate(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("write it as 2027-01-31, which is its first moment in UTC, or 2027-01-31T18:00:00Z")
}

// prefill gives plain fields the default of their tag, before a file is read.
// Fields that are an [Option] are told apart from unsaid ones and come later.
func prefill(v reflect.Value) {
	for i := range v.NumField() {
		f, def := v.Field(i), v.Type().Field(i).Tag.Get("default")
		if def == "" {
			if f.Kind() == reflect.Struct && f.CanSet() {
				prefill(f)
			}
			continue
		}
		switch to := f.Addr().Interface().(type) {
		case *string:
			*to = def
		case *bool:
			*to = def == "true"
		case *int:
			*to, _ = strconv.Atoi(def)
		case *float64:
			*to, _ = strconv.ParseFloat(def, 64)
		case *time.Duration:
			*to, _ = time.ParseDuration(def)
		case *Size:
			*to, _ = parseSize(def)
		case *Permissions:
			*to = strings.Split(def, ",")
		}
	}
}
