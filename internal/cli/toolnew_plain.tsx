import { Script } from "scripting"

// What assistant_tool.json lists under parameters.
type Params = { texts: string[]; pause?: number }

const sleep = (ms: number) => new Promise<void>((resolve) => { setTimeout(resolve, ms) })

async function execute({ texts, pause = 100 }: Params): Promise<AssistantTool.Outcome> {
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
  const test = AssistantTool.registerExecuteTool<Params>(execute)

  // Does nothing, but under "belay tool run --test".
  test({ texts: ["to be or not to be", "that is the question"], pause: 10 })
}
