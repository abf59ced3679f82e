// A declined call and a cancelled one are two things: the first never works, the
// second hands back what it has.
type Params = { at: string; items?: string[] }

AssistantTool.registerApprovalRequest<Params>(async ({ items = [] }) => ({
  message: `Work through ${items.length} items?`,
  primaryButtonLabel: "Work",
  secondaryButtonLabel: "Leave it",
}))

AssistantTool.registerExecuteToolWithApproval<Params>(async ({ at, items = [] }, { primaryConfirmed, secondaryConfirmed }) => {
  if (!primaryConfirmed) {
    return { success: false, message: secondaryConfirmed ? "The user left it." : "Nobody answered." }
  }
  const partial: string[] = []
  AssistantTool.onCancel = () => ["Cancelled by the user. Partial results:", ...partial].join("\n")
  for (const item of items) {
    if (AssistantTool.isCancelled) return
    partial.push(await (await fetch(`${at}/item?name=${item}`)).text())
  }
  return { success: true, message: partial.join("\n") }
})
