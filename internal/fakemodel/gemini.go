package fakemodel

import (
	"encoding/json"
	"strings"
)

// The Gemini interface, as gemini-cli uses it.

func readGemini(path string, body []byte) (request, error) {
	var m struct {
		Tools []struct {
			Declarations []struct {
				Name string `json:"name"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
	}
	err := json.Unmarshal(body, &m)
	q := request{model: "mock", stream: strings.HasSuffix(path, ":streamGenerateContent")}
	for _, t := range m.Tools {
		for _, d := range t.Declarations {
			q.offers = append(q.offers, offer{name: d.Name})
		}
	}
	return q, err
}

func writeGemini(out *wire, q request, r reply) {
	part := object{"text": r.text}
	if r.name != "" {
		part = object{"functionCall": object{"id": r.id("f"), "name": r.name, "args": r.arguments}}
	}
	candidate := object{"index": 0, "content": object{"role": "model", "parts": []any{part}}, "finishReason": "STOP"}
	if r.hang {
		delete(candidate, "finishReason")
	}
	answer := object{
		"candidates":    []any{candidate},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
		"modelVersion":  q.model,
	}
	if !q.stream {
		out.whole(answer)
		return
	}
	out.event("", answer)
}
