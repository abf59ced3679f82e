// Package fakemodel is a model on loopback for agents under test: it speaks the
// four interfaces that coding agents use, and says what the test wants.
//
// # Model
//
// A [Server] has a list of [Step]s. A request that offers the tool of a step not
// yet taken, and holds its word somewhere in its body, is answered with one call
// of that tool, or with a stream that never ends; the step is then taken. Every
// other request is answered with the text "done.": the turn's next one with the
// tool's result, and those without tools that agents make for titles and routing.
// So a prompt that holds the words of two steps calls two tools, one after the
// other, and a prompt without a word is answered at once.
//
//	POST /v1/messages                       Anthropic messages
//	POST /v1/responses                      OpenAI responses
//	POST /v1/chat/completions               OpenAI chat
//	POST /v1beta/models/M:generateContent   Gemini, and :streamGenerateContent
//
// # Guarantees
//
// Nothing leaves the machine by it: given to an agent as its proxy, it refuses
// every request to somewhere else with 403, and keeps the address in its log.
// The answers have the shapes that the pinned agents of interop accept; they are
// not whole: there is no usage to speak of, no errors, no sampling. Bodies are
// bounded by [MaxBody], the log by [MaxLog].
package fakemodel
