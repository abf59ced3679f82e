// A loop that breaks when it is stopped, and still returns its result: that is ignored.
type Params = { at: string; items?: string[] }

const work = async (at: string, item: string) => (await fetch(`${at}/item?name=${item}`)).text()

const executeTool = async ({ at, items = [] }: Params) => {
  const partialResults: string[] = []

  AssistantTool.onCancel = () => {
    return ["The batch was cancelled by the user.", "Partial results:", ...partialResults].join("\n")
  }

  for (const item of items) {
    if (AssistantTool.isCancelled) break
    const result = await work(at, item)
    partialResults.push(result)
  }

  return {
    success: true,
    message: partialResults.join("\n"),
  }
}

AssistantTool.registerExecuteTool<Params>(executeTool)
