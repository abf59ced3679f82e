// Asks several sources at the same time. Whoever stops it gets what has been found
// until then, and the names of those that had not answered yet.

import { Script } from "scripting"
import { plain, sources, type Hit, type Source } from "./sources"

type Params = { query: string; sources?: unknown[]; limit?: number; mirrors?: Record<string, unknown> }
type Answer = { source: string; hits?: Hit[]; failure?: string }

const TIMEOUT = 20 // seconds for one source

async function ask(source: Source, params: Params, limit: number, signal: AbortSignal): Promise<Answer> {
  const base = String(params.mirrors?.[source.name] ?? source.base).replace(/\/+$/, "")
  try {
    const response = await fetch(base + source.path(params.query, limit), {
      headers: { accept: "application/json", "user-agent": "belay-example-search" },
      timeout: TIMEOUT,
      signal,
    })
    if (!response.ok) return { source: source.name, failure: `HTTP ${response.status}` }
    const hits = source.read(await response.json()).slice(0, limit)
    return { source: source.name, hits: hits.map((h) => ({ title: plain(h.title, 200), url: h.url, text: plain(h.text, 300) })) }
  } catch (e) {
    return { source: source.name, failure: e instanceof Error ? e.message : String(e) }
  }
}

function show(answers: Answer[]): string {
  const lines: string[] = []
  for (const { source, hits, failure } of answers) {
    lines.push("", `## ${source}`)
    if (failure !== undefined) lines.push(`could not be asked: ${failure}`)
    else if (!hits?.length) lines.push("found nothing")
    else hits.forEach((h, i) => lines.push(`${i + 1}. ${h.title}`, `   ${h.url}`, ...(h.text ? [`   ${h.text}`] : [])))
  }
  return lines.join("\n")
}

async function search(params: Params) {
  const query = params.query.trim()
  if (!query) return { success: false, message: "The query is empty." }
  const limit = Math.min(Math.max(params.limit ?? 5, 1), 20)
  const names = params.sources?.length ? params.sources.map(String) : sources.map((s) => s.name)
  const unknown = names.filter((n) => !sources.some((s) => s.name === n))
  if (unknown.length) {
    return { success: false, message: `Unknown: ${unknown.join(", ")}. There are: ${sources.map((s) => s.name).join(", ")}.` }
  }
  const chosen = sources.filter((s) => names.includes(s.name))

  const answers: Answer[] = []
  const open = new AbortController()
  AssistantTool.onCancel = () => {
    open.abort() // nothing new begins; what is open ends at once
    const waiting = chosen.map((s) => s.name).filter((n) => !answers.some((a) => a.source === n))
    return [
      "The search was cancelled by the user.",
      `Partial results for "${query}" (${answers.length} of ${chosen.length} sources):`,
      show(answers),
      ...(waiting.length ? ["", `Not answered yet: ${waiting.join(", ")}`] : []),
    ].join("\n")
  }

  const progress = () => AssistantTool.report(`${answers.length} of ${chosen.length} sources have answered`, "progress")
  progress()
  await Promise.all(chosen.map(async (source) => {
    const answer = await ask(source, { ...params, query }, limit, open.signal)
    if (AssistantTool.isCancelled) return
    answers.push(answer)
    progress()
  }))
  if (AssistantTool.isCancelled) return

  answers.sort((a, b) => names.indexOf(a.source) - names.indexOf(b.source))
  const found = answers.reduce((n, a) => n + (a.hits?.length ?? 0), 0)
  return {
    success: answers.some((a) => a.hits !== undefined),
    output: {
      assistantParts: [{ type: "text", text: `${found} hits for "${query}":\n${show(answers)}` }],
      userParts: [`${found} hits in ${answers.filter((a) => a.hits?.length).length} sources`],
    },
  }
}

if (Script.env === "assistant_tool") {
  const test = AssistantTool.registerExecuteTool<Params>(search)
  test({ query: "cancellation", sources: ["wikipedia"], limit: 3 })
}
