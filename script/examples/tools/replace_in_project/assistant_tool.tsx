// Asks a person before anything is written, and then does exactly what was shown:
// a file that changed in the meantime is left alone. Whoever stops it learns which
// files are done.

import { count, plan, sum, type Params } from "./plan"

const SHOWN = 20 // files in the question and in the preview

AssistantTool.registerApprovalRequest<Params>(async (params, editor) => {
  if (!editor) return { message: "There is no editor here, so nothing can be changed.", secondaryButtonLabel: "Close" }
  if (editor.canWrite === false) throw new Error(`${editor.scriptName} may only be read: the configuration must grant writing.`)
  const changes = await plan(params, editor)
  AssistantTool.setState("texts", changes.map((c) => fingerprint(c.file, c.before)))
  if (!changes.length) return { message: `"${params.find}" is in no file of ${editor.scriptName}.`, secondaryButtonLabel: "Close" }
  const list = changes.slice(0, SHOWN).map((c) => `${c.file} (${c.places})`)
  if (changes.length > SHOWN) list.push(`and ${changes.length - SHOWN} more`)
  return {
    title: `Change ${count(changes.length, "file")}?`,
    message: `Replace "${params.find}" by "${params.replace}" in ${count(sum(changes), "place")} of ${editor.scriptName}:\n${list.join("\n")}`,
    previewButton: { label: "Show changes", action: () => changes.slice(0, SHOWN).forEach((c) => editor.openDiffEditor(c.file, c.after)) },
    primaryButtonLabel: "Replace",
    secondaryButtonLabel: "Leave as it is",
  }
})

AssistantTool.registerExecuteToolWithApproval<Params>(async (params, { primaryConfirmed, secondaryConfirmed }, editor) => {
  if (!editor) return { success: false, message: "There is no editor here: the configuration must grant a folder." }
  const agreed = new Set((AssistantTool.getState("texts") as number[] | null) ?? [])
  if (!primaryConfirmed) {
    if (!agreed.size) return { success: false, message: `"${params.find}" is in no file. Nothing was changed.` }
    return { success: false, message: secondaryConfirmed ? "The person left everything as it is." : "Nobody agreed, so nothing was changed." }
  }

  const done: string[] = []
  const left: string[] = []
  let files = 0
  AssistantTool.onCancel = () =>
    [
      "The replacement was cancelled by the user.",
      `Partial results: ${done.length} of ${count(files, "file")} changed, each of them completely:`,
      ...done,
    ].join("\n")

  const changes = await plan(params, editor)
  files = changes.length
  for (const { file, places, before, after } of changes) {
    if (AssistantTool.isCancelled) return
    if (!agreed.has(fingerprint(file, before))) {
      left.push(`${file}: changed since the question was asked`)
      continue
    }
    AssistantTool.report(`${file} (${done.length + 1} of ${files})`, "progress")
    if (await editor.updateFileContent(file, after)) done.push(`${file} (${places})`)
    else left.push(`${file}: could not be written`)
  }
  if (AssistantTool.isCancelled) return
  return {
    success: left.length === 0,
    message: [`Changed ${count(done.length, "file")}:`, ...done, ...(left.length ? ["", "Left alone:", ...left] : [])].join("\n"),
  }
})

/** Tells one text of a file from another (FNV-1a). A number, for the state of a call is small. */
function fingerprint(file: string, text: string): number {
  let h = 0x811c9dc5
  for (const s of [file, "\n", text]) for (let i = 0; i < s.length; i++) h = Math.imul(h ^ s.charCodeAt(i), 0x01000193)
  return h >>> 0
}
