// JSON set out in lines. Nothing but white space outside its texts changes: no number, no order, no name twice.

const INDENT = "  "
// What is nested deeper stands no further to the right.
const DEEPEST = 40

// Whether `text` is one JSON object or list.
export function isJson(text) {
  if (!/^\s*[{[]/.test(text)) return false
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

// Whether a text that is not whole yet begins as JSON does.
export const beginsAsJson = (text) => /^\s*(?:\{\s*"|\[\s*[[{"])/.test(text)

// `text`, which is JSON, in lines.
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
      // An empty one stays in its line.
      if (last?.startsWith("\n") && /[{[]$/.test(parts.at(-2))) parts.pop()
      else parts.push(line())
      parts.push(token)
    } else if (token === ",") parts.push(",", line())
    else parts.push(token === ":" ? ": " : token)
  }
  return parts.join("")
}
