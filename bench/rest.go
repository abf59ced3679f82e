package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"
)

// rest is the leanest client of the REST API: raw HTTP/1.1 on one connection,
// one request at a time.
type rest struct {
	line
	host, token string
}

// openREST connects to the server that serves an address.
func openREST(address, token string) (*rest, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout("tcp", at.Host, limit)
	if err != nil {
		return nil, err
	}
	return &rest{line: line{conn: conn, in: bufio.NewReaderSize(conn, 4<<10)}, host: at.Host, token: token}, nil
}

func (c *rest) close() { _ = c.conn.Close() }

// do sends a request and reads the answer, whose body stands in c.body until the
// next.
func (c *rest) do(method, path, body string) (status int, err error) {
	_ = c.conn.SetDeadline(time.Now().Add(limit))
	b := append(c.out[:0], method...)
	b = append(b, ' ')
	b = append(b, path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, c.host...)
	b = append(b, "\r\nAuthorization: Bearer "...)
	b = append(b, c.token...)
	if body != "" {
		b = append(b, "\r\nContent-Type: application/json\r\nContent-Length: "...)
		b = strconv.AppendInt(b, int64(len(body)), 10)
	}
	b = append(b, "\r\n\r\n"...)
	c.out = append(b, body...)
	if _, err := c.conn.Write(c.out); err != nil {
		return 0, err
	}
	h, err := c.read()
	return h.status, err
}

// get decodes what a path shows.
func (c *rest) get(path string, into any) error {
	status, err := c.do("GET", path, "")
	if err == nil && status != 200 {
		err = fmt.Errorf("GET %s: status %d: %.200s", path, status, c.body)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(c.body, into)
}

// inFlight returns the ids of all calls whose work is running.
func (c *rest) inFlight() ([]string, error) {
	var ids []string
	for next := ""; ; {
		var page struct {
			Runs []struct {
				ID string `json:"id"`
			} `json:"runs"`
			Next string `json:"next"`
		}
		if err := c.get("/v1/runs?kind=call&state=running&limit=1000&cursor="+next, &page); err != nil {
			return nil, err
		}
		for _, r := range page.Runs {
			ids = append(ids, r.ID)
		}
		if next = page.Next; next == "" {
			return ids, nil
		}
	}
}

var errReceipt = errors.New("a receipt is not as it was answered")

// receipts counts the receipts of calls, which must all be final and say that
// the tool has stopped.
func (c *rest) receipts() (int, error) {
	seen := map[string]bool{}
	for next := ""; ; {
		var page struct {
			Receipts []struct {
				Run     string `json:"run"`
				Verdict string `json:"verdict"`
				Final   bool   `json:"final"`
			} `json:"receipts"`
			Next string `json:"next"`
		}
		if err := c.get("/v1/receipts?kind=call&limit=1000&cursor="+next, &page); err != nil {
			return 0, err
		}
		for _, r := range page.Receipts {
			if seen[r.Run] || !r.Final || r.Verdict != "acknowledged" && r.Verdict != "confirmed" {
				return 0, fmt.Errorf("%w: %+v", errReceipt, r)
			}
			seen[r.Run] = true
		}
		if next = page.Next; next == "" {
			return len(seen), nil
		}
	}
}
