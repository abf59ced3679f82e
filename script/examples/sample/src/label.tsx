import { Text } from "scripting"
import { colourOf } from "./colour"

export const Label = ({ state }: { state: string }) => <Text foregroundStyle={colourOf(state)}>{state}</Text>
