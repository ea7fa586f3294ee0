// Model output is data. It is shown as text or as inert Markdown, without HTML, scripts, images or anything fetched.

import { remember } from "./copying.js"
import { formulaElement } from "./draw_formulas.js"
import { FROM_THE_RIGHT, apart } from "./format.js"
import { takeOut } from "./formulas.js"
import { beginsAsJson, inLines, isJson } from "./json_text.js"
import MarkdownIt from "./vendor/markdown-it.min.js"

const MARKDOWN_LIMIT = 200_000
// Blocks of text, each with the direction of its first letter. Code reads from the left.
const BLOCKS = "p, h1, h2, h3, h4, h5, h6, td, th"
// `auto` ignores parts that have a direction of their own.
const HOLDERS = "blockquote, ul, ol, li, table"
const ALLOWED_TAGS = new Set(
  "p br hr h1 h2 h3 h4 h5 h6 strong em s code pre blockquote ul ol li table thead tbody tr th td a".split(" "),
)
const ALLOWED_ATTRIBUTES = new Set(["href", "start", "style"])
const ALLOWED_STYLE = /^text-align: ?(left|center|right);?$/
// Number of characters of a table's cell that are kept in one line.
const SHORT_CELL = 26
const LONGEST_KEPT_TOGETHER = 60
// A comparison marks what differs with these: a formula of two runs at once is shown as it was written.
const PRIVATE = /[\ue000-\ue003]/
// A part that is drawn within `QUICK_MS` is drawn with each piece of text. A slower one rests `REST` times as long.
const QUICK_MS = 3
const REST = 10
// Characters that a backslash escapes. Before other characters it is plain text, as in LaTeX without delimiters.
const ESCAPED = /[\\`*_#+\-.!<>|~$[\]()]/

const markdown = new MarkdownIt({ html: false, linkify: false, breaks: true, typographer: false })
markdown.disable("image")
markdown.inline.ruler.before("escape", "backslash", (state, silent) => {
  if (
    state.src[state.pos] !== "\\" ||
    /^$|[\n]/.test(state.src[state.pos + 1] ?? "") ||
    ESCAPED.test(state.src[state.pos + 1])
  )
    return false
  if (!silent) state.pending += "\\"
  state.pos += 1
  return true
})
// Asterisks between two letters or digits open nothing: 2*3*4 is a product, and x**2 a power. Two may end bold text.
const scanned = markdown.inline.State.prototype.scanDelims
markdown.inline.State.prototype.scanDelims = function (start, splitsWords) {
  const run = scanned.call(this, start, splitsWords)
  const within =
    /[A-Za-z0-9)\]]/.test(this.src[start - 1] ?? "") && /[A-Za-z0-9(]/.test(this.src[start + run.length] ?? "")
  return this.src[start] === "*" && within
    ? { ...run, can_open: false, can_close: run.can_close && run.length > 1 }
    : run
}
markdown.validateLink = (url) => /^https?:\/\//i.test(url)

// Controls that a terminal or the bidirectional algorithm would act on, and characters that hide text from a reader.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g
const TRICKS = /[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]|[\u{e0000}-\u{e007f}]/gu

export function visible(text) {
  return text.replace(/\r\n?/g, "\n").replace(CONTROLS, named).replace(TRICKS, named)
}

// Returns a name to be put into a line, whichever way it is written.
export const isolated = (name) => apart(visible(name))

// Names who gave an output; `given` is the record of it.
export const personOf = ({ actor }) => isolated(actor?.name ?? "a person")

// Returns the direction as `dir="auto"` does: by the first letter that has a direction.
export function rightToLeft(text) {
  const [first] = /\p{L}/u.exec(text) ?? [""]
  return FROM_THE_RIGHT.test(first)
}

const named = (character) => `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`

// `growing`: more may follow. `whole`, `from`: the text that `text` is a part of, and where it begins there.
export function renderMarkdown(text, { growing = false, whole = text, from = 0 } = {}) {
  if (text.length > MARKDOWN_LIMIT) return asCode(visible(text), [whole, from, from + text.length])
  if (!growing && isJson(text)) return asCode(visible(inLines(text)), [whole, from, from + text.length, text])
  const { shown, formulas, mark, lineOf } = takeOut(visible(text), growing)
  const tokens = markdown.parse(shown, {})
  const blocks = tokens.filter(({ level, nesting, type }) => level === 0 && nesting >= 0 && type !== "inline")
  const codes = blocks.map(({ type, content }) => (type === "fence" || type === "code_block" ? content : null))
  for (const token of tokens)
    if (token.type === "fence" && isOneLineOfJson(token)) token.content = `${inLines(token.content)}\n`
  const template = document.createElement("template")
  template.innerHTML = markdown.renderer.render(tokens, markdown.options, {})
  scrub(template.content)
  for (const holder of template.content.querySelectorAll(HOLDERS)) {
    holder.setAttribute("dir", rightToLeft(holder.textContent) ? "rtl" : "ltr")
  }
  for (const cell of template.content.querySelectorAll("td, th"))
    cell.classList.toggle("short", cell.textContent.length <= SHORT_CELL)
  const starts = lineStarts(text)
  const at = (line) => from + (starts[lineOf ? (lineOf[line] ?? starts.length) : line] ?? text.length)
  ;[...template.content.children].forEach((element, index) => {
    if (!blocks[index]) return
    const [first, end] = blocks[index].map
    const upTo = from + text.slice(0, at(end) - from).trimEnd().length
    remember(element, whole, at(first), upTo, putBack(codes[index], formulas, mark))
  })
  if (formulas.length) putIn(template.content, formulas, mark)
  // Set last, because a browser searches such a block again for each child that is added to it.
  for (const block of template.content.querySelectorAll(BLOCKS)) block.setAttribute("dir", "auto")
  return template.content
}

function asCode(shown, source) {
  const pre = document.createElement("pre")
  pre.textContent = shown
  remember(pre, ...source)
  const fragment = document.createDocumentFragment()
  fragment.append(pre)
  return fragment
}

const isOneLineOfJson = ({ info, content }) =>
  /^json\b/i.test(info) && !content.trim().includes("\n") && isJson(content)

// Returns where each line of `text` begins.
function lineStarts(text) {
  const starts = [0]
  for (const end of text.matchAll(/\r\n?|\n/g)) starts.push(end.index + end[0].length)
  return starts
}

const places = (mark) => new RegExp(`${mark}(\\d+)${mark}`, "g")

function putBack(text, formulas, mark) {
  return text === null || !mark ? text : text.replace(places(mark), (_, number) => formulas[number].source)
}

// Puts the formulas into their places: as text in code and in addresses, else as elements.
function putIn(root, formulas, mark) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT)
  const texts = []
  while (walker.nextNode()) if (walker.currentNode.data.includes(mark)) texts.push(walker.currentNode)
  for (const node of texts) {
    if (node.parentElement?.closest("pre, code")) node.data = putBack(node.data, formulas, mark)
    else node.replaceWith(withFormulas(node.data.split(places(mark)), formulas))
  }
  putIntoLinks(root, formulas, mark)
}

// Keeps a comma after a formula in its line. Nodes are added one by one: 100,000 are too many arguments for one call.
function withFormulas(parts, formulas) {
  const fragment = document.createDocumentFragment()
  for (let index = 0; index < parts.length; index += 1) {
    if (index % 2 === 0) {
      fragment.append(parts[index])
      continue
    }
    const formula = formulas[parts[index]]
    const [mark] = /^[.,;:!?)\]]*/.exec(parts[index + 1])
    if (PRIVATE.test(formula.source)) {
      fragment.append(formula.source, mark)
      parts[index + 1] = parts[index + 1].slice(mark.length)
      continue
    }
    const element = formulaElement(formula)
    if (!mark || formula.display || formula.source.length > LONGEST_KEPT_TOGETHER) {
      fragment.append(element)
      continue
    }
    parts[index + 1] = parts[index + 1].slice(mark.length)
    const together = document.createElement("span")
    together.className = "together"
    together.append(element, mark)
    fragment.append(together)
  }
  return fragment
}

function putIntoLinks(root, formulas, mark) {
  const encoded = encodeURI(mark)
  for (const link of root.querySelectorAll("a")) {
    const href = link.getAttribute("href")?.replace(places(encoded), (_, number) => encodeURI(formulas[number].source))
    if (href) link.setAttribute("href", href)
    if (href) link.title = href
  }
}

// A second protection after markdown-it's own escaping: every element that is not on the list becomes text.
function scrub(root) {
  for (const element of root.querySelectorAll("*")) {
    if (!ALLOWED_TAGS.has(element.localName)) {
      element.replaceWith(document.createTextNode(element.textContent))
      continue
    }
    for (const { name, value } of Array.from(element.attributes)) {
      if (!ALLOWED_ATTRIBUTES.has(name) || (name === "style" && !ALLOWED_STYLE.test(value)))
        element.removeAttribute(name)
    }
    if (element.localName === "a") {
      element.setAttribute("rel", "noopener noreferrer nofollow")
      element.setAttribute("target", "_blank")
      element.setAttribute("title", element.getAttribute("href") ?? "")
    }
  }
}

// Renders growing Markdown: finished blocks are rendered once, and only the last one again with each piece of text.
export class StreamedMarkdown {
  constructor(element) {
    this.element = element
    this.tail = document.createElement("div")
    this.tail.className = "tail"
    this.reset()
  }

  reset() {
    clearTimeout(this.later)
    this.text = ""
    this.settled = 0
    this.done = false
    this.json = null
    this.due = 0
    this.element.replaceChildren(this.tail)
    this.tail.replaceChildren()
  }

  // Shows `text`. `done`: no more will come, so lists and tables that span blocks are joined.
  show(text, done) {
    if (text === this.text && done === this.done) return
    clearTimeout(this.later)
    // The first text may replace a placeholder in the element.
    if (this.text === "" || this.done || !text.startsWith(this.text)) this.reset()
    this.text = text
    this.done = done
    this.element.classList.toggle("growing", !done)
    if (done) {
      this.element.replaceChildren(renderMarkdown(text))
      return
    }
    if (beginsAsJson(text)) return this.showJson(text)
    const wait = this.due - performance.now()
    if (wait > 0) this.later = setTimeout(() => this.grow(), wait)
    else this.grow()
  }

  // A block without a blank line is drawn again each time, so it is drawn less often the longer that takes.
  grow() {
    const began = performance.now()
    const { text } = this
    const boundary = settledLength(text, this.settled)
    if (boundary > this.settled) {
      const settled = renderMarkdown(text.slice(this.settled, boundary), { whole: text, from: this.settled })
      // What stood in the tail stays where it is; another tail begins below it.
      const before = this.tail
      this.tail = before.cloneNode(false)
      before.replaceWith(settled, this.tail)
      this.settled = boundary
    }
    this.tail.replaceChildren(
      renderMarkdown(text.slice(this.settled), { growing: true, whole: text, from: this.settled }),
    )
    const now = performance.now()
    this.due = now - began < QUICK_MS ? 0 : now + REST * (now - began)
  }

  // JSON is formatted in lines when it is whole. Until then each piece is appended.
  showJson(text) {
    if (!this.json) {
      this.json = document.createTextNode("")
      const pre = document.createElement("pre")
      pre.append(this.json)
      this.tail.replaceChildren(pre)
    }
    this.json.appendData(visible(text.slice(this.settled)))
    this.settled = text.length
  }
}

// Returns the end of the last blank line outside a code fence, from `start`.
function settledLength(text, start) {
  let boundary = start
  let fence = null
  let position = start
  while (position < text.length) {
    const end = text.indexOf("\n", position)
    if (end < 0) break
    const line = text.slice(position, end)
    const marker = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1]
    if (fence === null && marker) fence = marker
    else if (fence !== null && marker && marker[0] === fence[0] && marker.length >= fence.length) fence = null
    else if (fence === null && line.trim() === "") boundary = end + 1
    position = end + 1
  }
  return boundary
}
