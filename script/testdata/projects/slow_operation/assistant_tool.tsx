// A tool that knows nothing of cancellation: that is full, valid use.
type Params = { at: string }

const executeTool = async ({ at }: Params) => {
  await fetch(at + "/slow")

  return {
    success: true,
    message: "The slow operation is done.",
  }
}

AssistantTool.registerExecuteTool<Params>(executeTool)
