package fakemodel

import "encoding/json"

// The OpenAI chat interface, as opencode uses it.

func readChat(_ string, body []byte) (request, error) {
	var m struct {
		Model  string `json:"model"`
		Stream bool   `json:"stream"`
		Tools  []struct {
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tools"`
	}
	err := json.Unmarshal(body, &m)
	q := request{model: m.Model, stream: m.Stream}
	for _, t := range m.Tools {
		q.offers = append(q.offers, offer{name: t.Function.Name})
	}
	return q, err
}

func writeChat(out *wire, q request, r reply) {
	usage := object{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
	message, reason := object{"role": "assistant", "content": r.text}, "stop"
	if r.name != "" {
		message, reason = object{"role": "assistant", "tool_calls": []any{object{
			"index": 0, "id": r.id("call"), "type": "function",
			"function": object{"name": r.name, "arguments": text(r.arguments)},
		}}}, "tool_calls"
	}
	answer := func(kind string, choice object) object {
		choice["index"] = 0
		return object{"id": r.id("chat"), "object": kind, "created": 1, "model": "mock", "choices": []any{choice}}
	}
	if !q.stream {
		whole := answer("chat.completion", object{"message": message, "finish_reason": reason})
		whole["usage"] = usage
		out.whole(whole)
		return
	}
	const chunk = "chat.completion.chunk"
	out.event("", answer(chunk, object{"delta": message}))
	if r.hang {
		return
	}
	last := answer(chunk, object{"delta": object{}, "finish_reason": reason})
	last["usage"] = usage
	out.event("", last)
	out.event("", "[DONE]")
}
