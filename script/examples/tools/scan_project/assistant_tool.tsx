// Looks through the files of the editor's folder, one after the other. Whoever stops
// it gets what has been found until then, and how far it came.

import { check, kinds } from "./rules"

type Params = { look_for?: unknown[]; text?: string; below?: string; limit?: number }

async function scan(params: Params, editor?: ScriptEditorProvider) {
  if (!editor) return { success: false, message: "There is no editor here: the configuration must grant a folder." }
  const names = params.look_for?.length ? params.look_for.map(String) : kinds
  const unknown = names.filter((n) => !kinds.includes(n))
  if (unknown.length) return { success: false, message: `Unknown: ${unknown.join(", ")}. There are: ${kinds.join(", ")}.` }
  const wanted = new Set(names)
  const text = (params.text ?? "").toLowerCase()
  const limit = Math.min(Math.max(params.limit ?? 100, 1), 1000)
  const below = (params.below ?? "").replace(/^(\.?\/)+|\/+$/g, "")
  const files = editor.getAllFiles().filter((f) => !below || f === below || f.startsWith(below + "/"))

  const counts: Record<string, number> = {}
  const places: string[] = []
  let looked = 0, skipped = 0
  const add = (kind: string, place: string) => {
    counts[kind] = (counts[kind] ?? 0) + 1
    if (places.length < limit) places.push(`${kind}: ${place}`)
  }
  const summary = () => {
    const all = Object.values(counts).reduce((a, b) => a + b, 0)
    return [
      ...(all ? Object.entries(counts).map(([kind, n]) => `- ${kind}: ${n}`) : ["- nothing was found"]),
      ...(places.length ? ["", ...places] : []),
      ...(all > places.length ? [`… and ${all - places.length} more`] : []),
      ...(skipped ? ["", `${skipped} files are no text, or too large`] : []),
    ].join("\n")
  }

  AssistantTool.onCancel = () =>
    [`The scan of ${editor.scriptName} was cancelled by the user.`, `Partial results (${looked} of ${files.length} files):`, summary()].join("\n")

  if (wanted.has("syntax")) {
    const errors = editor.getLintErrors()
    for (const file of files) for (const e of errors[file] ?? []) add("syntax", `${file}:${e.line}: ${e.message}`)
  }
  for (const file of files) {
    if (AssistantTool.isCancelled) return
    if (looked % 20 === 0) AssistantTool.report(`${looked} of ${files.length} files`, "progress")
    const content = await editor.getFileContent(file)
    if (content === null) skipped++
    else content.split("\n").forEach((line, i) => { for (const f of check(line, wanted, text)) add(f.kind, `${file}:${i + 1}: ${f.shown}`) })
    looked++
  }
  if (AssistantTool.isCancelled) return
  return { success: true, message: `${editor.scriptName}: ${looked} files.\n${summary()}` }
}

AssistantTool.registerExecuteTool<Params>(scan)({ look_for: ["marks"], limit: 20 })
