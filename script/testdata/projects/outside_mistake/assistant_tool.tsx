// The mistake that the guide warns of: there is no execution here that onCancel
// could belong to.
type Params = { at: string }

AssistantTool.onCancel = () => "set outside of the execution"

const executeTool = async ({ at }: Params) => {
  await fetch(at + "/slow")
  return { success: true, message: `onCancel is ${AssistantTool.onCancel}` }
}

AssistantTool.registerExecuteTool<Params>(executeTool)
