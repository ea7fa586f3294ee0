// Finds the formulas of a text. They are taken out before Markdown reads the rest, because Markdown would interpret
// their backslashes, underscores, asterisks and bars.

// A longer one is not drawn.
const LONGEST_CHARACTERS = 3_000
// Further formulas of a text stay as they were written, because each takes time to draw.
const MOST_DRAWN = 3_000
const LONGEST_SEARCHED = 20_000
const LONGEST_IN_DOLLARS = 1_000
const ENVIRONMENTS = new Set(
  (
    "align alignat alignedat aligned array Bmatrix bmatrix cases CD darray dcases drcases equation gather gathered " +
    "matrix multline pmatrix rcases smallmatrix split subarray Vmatrix vmatrix"
  ).split(" "),
)
// A fence, a run of backticks, a backslash with what it escapes, a dollar.
const STOPS =
  /^[ \t>]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?(?<fence>`{3,}|~{3,})[^`\n]*$|(?<ticks>`+)|\\(?<escaped>[\s\S])|\$/gm
const BLANK_LINE = /\n[ \t>]*\n/g
// Punctuation that Markdown treats like a dollar, and that is rare in texts.
const MARKS = ["\u2e2a", "\u2e2b", "\u2e2c", "\u2e2d", "\u2e30", "\u2e31", "\u2e33"]

// Returns `{shown, formulas, mark, lineOf}`: the text with `mark NUMBER mark` in place of each formula, the formulas as
// `{source, tex, display, drawn}` with the delimiters in `source` (`drawn` false: not whole, too long, or one of too
// many), and for each line of `shown` the line of `text` where it begins. `growing`: more text may follow.
export function takeOut(text, growing = false) {
  const mark = MARKS.find((each) => !text.includes(each))
  if (!mark || !/[$\\]/.test(text)) return { shown: text, formulas: [], mark: "", lineOf: null }
  const formulas = []
  const parts = []
  const lineOf = [0]
  let written = 0
  let line = 0
  const keep = (upTo) => {
    const part = text.slice(written, upTo)
    for (let at = part.indexOf("\n"); at >= 0; at = part.indexOf("\n", at + 1)) lineOf.push((line += 1))
    parts.push(part)
    written = upTo
  }
  for (const { start, end, ...formula } of formulasIn(text, growing)) {
    keep(start)
    const source = text.slice(start, end)
    parts.push(`${mark}${formulas.length}${mark}`)
    formulas.push({ source, ...formula, drawn: formula.drawn && formulas.length < MOST_DRAWN })
    for (let at = source.indexOf("\n"); at >= 0; at = source.indexOf("\n", at + 1)) line += 1
    written = end
  }
  keep(text.length)
  return { shown: parts.join(""), formulas, mark, lineOf }
}

function* formulasIn(whole, growing) {
  const text = new Searched(whole)
  let position = 0
  while (position < whole.length) {
    STOPS.lastIndex = position
    const stop = STOPS.exec(whole)
    if (!stop) return
    const after = stop.index + stop[0].length
    if (stop.groups.fence) position = afterFence(whole, after, stop.groups.fence)
    else if (stop.groups.ticks) position = afterCode(text, after, stop.groups.ticks)
    else {
      const formula = formulaAt(text, stop.index, growing)
      if (formula) yield formula
      position = formula ? formula.end : whole.startsWith("$$", stop.index) ? stop.index + 2 : after
    }
  }
}

// Looks for the next delimiter only once, even if many formulas are opened before it and never closed.
class Searched {
  constructor(text) {
    this.text = text
    this.next = new Map()
  }

  indexOf(what, from) {
    let [asked, at] = this.next.get(what) ?? [Infinity, -1]
    if (from < asked || at < from) {
      const found = typeof what === "string" ? this.text.indexOf(what, from) : this.match(what, from)
      at = found < 0 ? Infinity : found
      this.next.set(what, [from, at])
    }
    return at
  }

  match(pattern, from) {
    pattern.lastIndex = from
    return pattern.exec(this.text)?.index ?? -1
  }

  paragraphEnd(from) {
    return Math.min(this.indexOf(BLANK_LINE, from), this.text.length)
  }
}

function afterFence(text, from, fence) {
  const close = new RegExp(`^[ \\t>]*${fence[0]}{${fence.length},}[ \\t]*$`, "gm")
  close.lastIndex = from
  return close.exec(text) ? close.lastIndex : text.length
}

function afterCode(searched, from, ticks) {
  const close = new RegExp(`(?<!\`)${ticks}(?!\`)`, "g")
  close.lastIndex = 1 // the opening tick is there for the look behind, not to be found
  const found = close.exec(searched.text.slice(from - 1, searched.paragraphEnd(from)))
  return found ? from - 1 + close.lastIndex : from
}

// Returns the formula that begins with the backslash or dollar at `start`; null if there is none.
function formulaAt(searched, start, growing) {
  const { text } = searched
  const opener = openerAt(text, start)
  if (!opener) return null
  const { length, display, crosses, close } = opener
  const from = start + length
  const limit = Math.min(crosses ? text.length : searched.paragraphEnd(from), from + opener.longest)
  const closed = searched.indexOf(opener.closer, from) < limit ? close(text, from, limit) : null
  if (!closed) return opener.certain || (growing && length === 2) ? unclosed(searched, start, growing) : null
  if (!text.slice(from, closed.at).trim()) return null
  const inside = text.slice(opener.whole ? start : from, opener.whole ? closed.end : closed.at)
  const drawn = inside.length <= LONGEST_CHARACTERS
  return { start, end: closed.end, tex: drawn ? unquoted(inside, text, start) : "", display, drawn }
}

function openerAt(text, start) {
  const two = text.slice(start, start + 2)
  const paragraph = { length: 2, longest: LONGEST_SEARCHED, certain: true, crosses: false }
  if (two === "\\(") return { ...paragraph, display: false, closer: "\\)", close: pairOf(")") }
  if (two === "\\[") return { ...paragraph, display: true, crosses: true, closer: "\\]", close: pairOf("]") }
  if (two === "$$") {
    const alone = /^[ \t]*\n/.test(text.slice(start + 2, start + 20))
    return { ...paragraph, display: true, certain: false, crosses: alone, closer: "$$", close: dollars }
  }
  if (text[start] === "$") {
    if (/[A-Za-z0-9]/.test(text[start - 1] ?? "") || /^\s?$/.test(text[start + 1] ?? "")) return null
    return {
      length: 1,
      longest: LONGEST_IN_DOLLARS,
      certain: false,
      crosses: false,
      display: false,
      closer: "$",
      close: dollar,
    }
  }
  const environment = /^\\begin\{([A-Za-z]{2,12})(\*?)\}/.exec(text.slice(start, start + 24))
  if (!environment || !ENVIRONMENTS.has(environment[1])) return null
  const name = environment[1] + environment[2]
  const close = (within, from, limit) => environmentEnd(within, from, limit, name)
  return {
    ...paragraph,
    length: environment[0].length,
    display: true,
    crosses: true,
    whole: true,
    closer: `\\end{${name}}`,
    close,
  }
}

// Two backslashes belong together: `\\)` is a new line and a bracket.
const pairOf = (bracket) => (text, from, limit) => {
  const pairs = /\\([\s\S])/g
  pairs.lastIndex = from
  for (let pair = pairs.exec(text); pair && pair.index < limit; pair = pairs.exec(text)) {
    if (pair[1] === bracket) return { at: pair.index, end: pairs.lastIndex }
  }
  return null
}

function dollars(text, from, limit) {
  const stops = /\\[\s\S]|\$\$/g
  stops.lastIndex = from
  for (let stop = stops.exec(text); stop && stop.index < limit; stop = stops.exec(text)) {
    if (stop[0] === "$$") return { at: stop.index, end: stops.lastIndex }
  }
  return null
}

// A single dollar is closed by the next one or by none, so that several prices in a line are no formula.
function dollar(text, from, limit) {
  const stops = /\\[\s\S]|\$/g
  stops.lastIndex = from
  for (let stop = stops.exec(text); stop && stop.index < limit; stop = stops.exec(text)) {
    if (stop[0] !== "$") continue
    const inside = text.slice(from, stop.index)
    const closes = !/[\s([{/:]$/.test(inside) && !/^[0-9$]/.test(text.slice(stop.index + 1, stop.index + 2))
    return closes && !isPrice(inside) ? { at: stop.index, end: stops.lastIndex } : null
  }
  return null
}

// Recognises prose between two prices, such as "5 for the first and 10" between two dollars.
function isPrice(inside) {
  return /^\d[\d.,]*[a-zA-Z%]{0,7}[\s,;/]/.test(inside) && /[a-zA-Z]{2}/.test(inside) && !/[\\^_={}<>+]/.test(inside)
}

function environmentEnd(text, from, limit, name) {
  const stops = /\\(begin|end)\{([A-Za-z]{2,12}\*?)\}/g
  stops.lastIndex = from
  let depth = 1
  for (let stop = stops.exec(text); stop && stop.index < limit; stop = stops.exec(text)) {
    if (stop[2] !== name) continue
    depth += stop[1] === "begin" ? 1 : -1
    if (depth === 0) return { at: stop.index, end: stops.lastIndex }
  }
  return null
}

// Shows an unclosed formula as it is written, in an answer that was cut off or that still grows.
function unclosed(searched, start, growing) {
  const paragraph = searched.paragraphEnd(start)
  const over = paragraph - start > LONGEST_CHARACTERS || (growing && paragraph < searched.text.length)
  return { start, end: over ? start + 2 : paragraph, tex: "", drawn: false, display: false }
}

// In a quotation each line begins with the quotation mark of Markdown.
function unquoted(inside, text, start) {
  if (!inside.includes("\n")) return inside
  const before = text.slice(text.lastIndexOf("\n", start - 1) + 1, start)
  return /^[ \t]*>/.test(before) ? inside.replace(/\n[ \t]*(?:>[ \t]?)+/g, "\n") : inside
}
