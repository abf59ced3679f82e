package fakemodel

import "encoding/json"

// The Anthropic messages interface, as claude-agent-acp uses it.

func readMessages(_ string, body []byte) (request, error) {
	var m struct {
		Model  string `json:"model"`
		Stream bool   `json:"stream"`
		Tools  []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	err := json.Unmarshal(body, &m)
	q := request{model: m.Model, stream: m.Stream}
	for _, t := range m.Tools {
		q.offers = append(q.offers, offer{name: t.Name})
	}
	return q, err
}

func writeMessages(out *wire, q request, r reply) {
	usage := object{"input_tokens": 1, "output_tokens": 1}
	message := object{
		"id": r.id("msg"), "type": "message", "role": "assistant", "model": q.model,
		"content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": usage,
	}
	block, reason := object{"type": "text", "text": r.text}, "end_turn"
	start := object{"type": "text", "text": ""}
	delta := object{"type": "text_delta", "text": r.text}
	if r.name != "" {
		block, reason = object{"type": "tool_use", "id": r.id("toolu"), "name": r.name, "input": r.arguments}, "tool_use"
		start = object{"type": "tool_use", "id": r.id("toolu"), "name": r.name, "input": object{}}
		delta = object{"type": "input_json_delta", "partial_json": text(r.arguments)}
	}
	if !q.stream {
		message["content"], message["stop_reason"] = []any{block}, reason
		out.whole(message)
		return
	}
	event := func(name string, data object) {
		data["type"] = name
		out.event(name, data)
	}
	event("message_start", object{"message": message})
	event("content_block_start", object{"index": 0, "content_block": start})
	event("content_block_delta", object{"index": 0, "delta": delta})
	if r.hang {
		return
	}
	event("content_block_stop", object{"index": 0})
	event("message_delta", object{"delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": usage})
	event("message_stop", object{})
}
