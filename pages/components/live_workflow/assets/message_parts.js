// The parts of a message: text, images, tool calls and their results.

import { estimateTokens } from "./format.js"

export const partsOf = (content) => (typeof content === "string" ? [{ kind: "text", text: content }] : content)

export const imagesIn = (content) => partsOf(content).filter(({ kind }) => kind === "image")

// Mirrors message_parts.in_words.
export const inWords = (content) => partsOf(content).map(partInWords).join("\n\n")

export function partInWords(part) {
  if (part.kind === "text") return part.text
  if (part.kind === "image")
    return `[image: ${typeOf(part)}, ${part.width} x ${part.height} pixels, sha256 ${part.sha256.slice(0, 12)}]`
  if (part.kind === "tool_call") return `[tool call ${part.call_id}: ${part.name}(${part.arguments})]`
  return `[${part.is_error ? "error" : "result"} of tool call ${part.call_id}: ${part.text}]`
}

export const typeOf = ({ media_type: type }) => type.split("/")[1].toUpperCase()

// Mirrors ImagePart.tokens.
export const contentTokens = (content) =>
  partsOf(content).reduce((sum, part) => {
    const tokens = part.kind === "image" ? Math.min(Math.ceil((part.width * part.height) / 750), 1600) : null
    return sum + (tokens ?? estimateTokens(partInWords(part)))
  }, 0)

// The messages by which a turn goes back to its worker with each later call, as they are sent.
export function turnMessages({ text, calls, results, said: added }) {
  const part = (written) => (written.trim() ? [{ kind: "text", text: written }] : [])
  const call = ({ call_id, name, arguments: given }) => ({ kind: "tool_call", call_id, name, arguments: given })
  const called = { role: "assistant", content: [...part(text), ...calls.map(call)] }
  if (results === null) return [called]
  const byId = new Map(results.map((result) => [result.call_id, result]))
  const brought = calls.map(({ call_id }) => byId.get(call_id)).filter(Boolean)
  return [called, { role: "user", content: [...brought, ...part(added)] }]
}

// The calls of tools in messages.
export const toolCalls = (messages) =>
  messages.flatMap(({ content }) => partsOf(content)).filter(({ kind }) => kind === "tool_call")
