// Formats JSON in lines. Only white space outside its strings changes; numbers, order and repeated names stay.

const INDENT = "  "
// Deeper levels are not indented further.
const DEEPEST = 40

// Says whether `text` is one JSON object or list.
export function isJson(text) {
  if (!/^\s*[{[]/.test(text)) return false
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

// Says whether a text that is still growing begins like JSON.
export const beginsAsJson = (text) => /^\s*(?:\{\s*"|\[\s*[[{"])/.test(text)

// Formats `text`, which must be JSON, in lines.
export function inLines(text) {
  const parts = []
  let depth = 0
  const line = () => `\n${INDENT.repeat(Math.min(depth, DEEPEST))}`
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\[\s\S])*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    const last = parts.at(-1)
    if (token === "{" || token === "[") {
      parts.push(token)
      depth += 1
      parts.push(line())
    } else if (token === "}" || token === "]") {
      depth -= 1
      // An empty object or list stays in its line.
      if (last?.startsWith("\n") && /[{[]$/.test(parts.at(-2))) parts.pop()
      else parts.push(line())
      parts.push(token)
    } else if (token === ",") parts.push(",", line())
    else parts.push(token === ":" ? ": " : token)
  }
  return parts.join("")
}
