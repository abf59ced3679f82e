package fakemodel

import "encoding/json"

// The OpenAI responses interface, as codex-acp uses it.

// readResponses finds the tools; those of an MCP server lie inside an entry
// whose name the call must repeat.
func readResponses(_ string, body []byte) (request, error) {
	type entry struct {
		Name  string `json:"name"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	var m struct {
		Model  string  `json:"model"`
		Stream bool    `json:"stream"`
		Tools  []entry `json:"tools"`
	}
	err := json.Unmarshal(body, &m)
	q := request{model: m.Model, stream: m.Stream}
	for _, t := range m.Tools {
		if t.Name != "" && len(t.Tools) == 0 {
			q.offers = append(q.offers, offer{name: t.Name})
		}
		for _, inner := range t.Tools {
			q.offers = append(q.offers, offer{name: inner.Name, group: t.Name})
		}
	}
	return q, err
}

func writeResponses(out *wire, q request, r reply) {
	item := object{
		"type": "message", "id": r.id("msg"), "role": "assistant", "status": "completed",
		"content": []any{object{"type": "output_text", "text": r.text, "annotations": []any{}}},
	}
	if r.name != "" {
		item = object{
			"type": "function_call", "id": r.id("fc"), "call_id": r.id("call"), "name": r.name,
			"arguments": text(r.arguments), "status": "completed",
		}
		if r.group != "" {
			item["namespace"] = r.group
		}
	}
	response := object{"id": r.id("resp"), "object": "response", "status": "in_progress", "output": []any{}}
	finished := object{
		"id": r.id("resp"), "object": "response", "status": "completed", "output": []any{item},
		"usage": object{
			"input_tokens": 1, "input_tokens_details": nil,
			"output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2,
		},
	}
	if !q.stream {
		out.whole(finished)
		return
	}
	number := 0
	event := func(name string, data object) {
		data["type"], data["sequence_number"] = name, number
		number++
		out.event(name, data)
	}
	event("response.created", object{"response": response})
	event("response.output_item.added", object{"output_index": 0, "item": item})
	if r.hang {
		return
	}
	event("response.output_item.done", object{"output_index": 0, "item": item})
	event("response.completed", object{"response": finished})
}
