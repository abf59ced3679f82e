// A loop that breaks when it is stopped, and then a bare return.
type Params = { at: string; items?: string[] }

const work = async (at: string, item: string) => (await fetch(`${at}/item?name=${item}`)).text()
const formatPartialResult = (list: string[]) => `Cancelled by the user. Partial report, ${list.length} lines: ${list.join(", ")}`
const formatFinalResult = (list: string[]) => `Report, ${list.length} lines: ${list.join(", ")}`

const executeTool = async ({ at, items = [] }: Params) => {
  const partial: string[] = []

  AssistantTool.onCancel = () => {
    return formatPartialResult(partial)
  }

  for (const item of items) {
    if (AssistantTool.isCancelled) break
    const r = await work(at, item)
    partial.push(r)
  }

  if (AssistantTool.isCancelled) {
    return
  }

  return {
    success: true,
    message: formatFinalResult(partial),
  }
}

AssistantTool.registerExecuteTool<Params>(executeTool)
