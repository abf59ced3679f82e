import { Script } from "scripting"

// What assistant_tool.json lists under parameters.
type Params = { texts: string[]; pause?: number }

const sleep = (ms: number) => new Promise<void>((resolve) => { setTimeout(resolve, ms) })

// What the person is asked. It only describes: no effects here, and no onCancel.
async function request({ texts }: Params): Promise<AssistantTool.ApprovalRequest> {
  return {
    message: `Count the words of ${texts.length} texts?`,
    previewButton: { label: "Show", action: () => AssistantTool.report(texts.join("\n"), "preview") },
    primaryButtonLabel: "Count",
    secondaryButtonLabel: "Leave it",
  }
}

// Called after every answer, a refusal included.
async function execute({ texts, pause = 100 }: Params, user: AssistantTool.UserAction): Promise<AssistantTool.Outcome> {
  if (!user.primaryConfirmed) {
    return { success: false, message: user.secondaryConfirmed ? "The user declined." : "The user did not answer." }
  }
  const counts: string[] = []

  // Called once, immediately, when somebody stops the call: what it returns is what
  // the assistant reads. It belongs here, inside the execute function.
  AssistantTool.onCancel = () =>
    ["Cancelled by the user.", `Partial results (${counts.length} of ${texts.length} texts):`, ...counts].join("\n")

  for (const text of texts) {
    if (AssistantTool.isCancelled) return // whatever is returned after a Stop is ignored
    AssistantTool.report(`text ${counts.length + 1} of ${texts.length}`, "progress")
    const words = text.split(/\s+/).filter((word) => word !== "")
    counts.push(`${words.length}: ${text}`)
    await sleep(pause)
  }
  return { success: true, message: counts.join("\n") }
}

if (Script.env === "assistant_tool") {
  AssistantTool.registerApprovalRequest<Params>(request)
  const test = AssistantTool.registerExecuteToolWithApproval<Params>(execute)

  // Do nothing, but under "belay tool run --test".
  const params = { texts: ["to be or not to be", "that is the question"], pause: 10 }
  test(params, { primaryConfirmed: true, secondaryConfirmed: false })
}
