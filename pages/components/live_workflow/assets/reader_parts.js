// Divides a long text into parts that are drawn one by one.

const PART = 6_000
// Largest length of a part that holds an uncut block. A longer block is cut.
const LONGEST = 60_000

// Returns `[from, end]` of each part. A part ends at a blank line outside code blocks, or at any line's end if `plain`.
export function asParts(text, plain) {
  const parts = []
  let from = 0
  let fence = null
  const cut = (end) => {
    for (; end - from > LONGEST; from = parts.at(-1)[1]) parts.push([from, whole(text, from + LONGEST)])
    if (end > from) parts.push([from, end])
    from = end
  }
  for (const { line, end } of lines(text)) {
    const marker = plain ? null : /^[ \t>]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?(`{3,}|~{3,})/.exec(line)?.[1]
    if (marker && fence === null) fence = marker
    else if (marker && marker[0] === fence[0] && marker.length >= fence.length) fence = null
    const may = plain || (fence === null && line.trim() === "")
    if (end - from >= LONGEST || (may && end - from >= PART)) cut(end)
  }
  cut(text.length)
  return parts
}

// Yields each line with the place where it ends, after its line break.
function* lines(text) {
  for (let at = 0; at < text.length;) {
    const end = text.indexOf("\n", at) + 1 || text.length
    yield { line: text.slice(at, end), end }
    at = end
  }
}

// Moves a cut so that it does not divide a character.
const whole = (text, at) => (/[\udc00-\udfff]/.test(text[at] ?? "") ? at - 1 : at)
