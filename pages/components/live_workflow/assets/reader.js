// Shows a whole long text over the page, in readable width, to search, copy and save as a file.
//
// It is drawn part by part, each in its own task, and hidden parts are not laid out, so that megabytes stay smooth.

import { copyButton, el, setText } from "./dom.js"
import { count } from "./format.js"
import { isJson } from "./json_text.js"
import { Search } from "./reader_search.js"
import { renderMarkdown, visible } from "./text.js"

// Longer texts are shown as they are written, without markup, because they are data rather than prose.
const MARKDOWN_LIMIT = 1_000_000
const SLICE_MS = 12
const PX_PER_CHARACTER = 0.3

export class Reader {
  constructor() {
    this.title = el("h2", { tabindex: "-1" })
    this.size = el("span", { class: "muted number" })
    this.search = new Search({ scroller: () => this.body, parts: () => this.parts })
    const save = (kind) =>
      el(
        "button",
        { type: "button", class: "quiet", title: `Save as a file, as it was written`, onclick: () => this.save(kind) },
        `Save .${kind}`,
      )
    const close = el(
      "button",
      {
        type: "button",
        class: "quiet close",
        "aria-label": "Close",
        title: "Close (Esc)",
        onclick: () => this.element.close(),
      },
      "✕",
    )
    const head = el(
      "header",
      {},
      this.title,
      this.size,
      el("span", { class: "spring" }),
      this.search.element,
      copyButton("Copy all of it", () => this.text),
      save("md"),
      save("txt"),
      close,
    )
    this.body = el("div", { class: "reader-body", tabindex: "0", "aria-label": "Text" })
    this.element = el("dialog", { class: "reader", "aria-label": "Reader" }, head, this.body)
    this.element.addEventListener("keydown", (event) => this.key(event))
    for (const kind of ["keyup", "keypress"]) this.element.addEventListener(kind, (event) => event.stopPropagation())
    this.element.addEventListener("click", (event) => event.target === this.element && this.element.close())
    this.element.addEventListener("close", () => this.closed())
    this.parts = []
  }

  // `name`: the name of the saved file.
  open({ title, text, name }) {
    this.text = text
    this.name = name
    setText(this.title, title)
    setText(this.size, `${count(text.length)} characters`)
    this.search.clear()
    this.fill()
    this.opener = this.element.getRootNode().activeElement
    this.element.showModal()
    this.body.scrollTop = 0
    this.body.focus({ preventScroll: true })
  }

  destroy() {
    this.element.close()
  }

  closed() {
    clearTimeout(this.filling)
    this.body.replaceChildren()
    this.parts = []
    this.search.clear()
    this.opener?.focus()
    this.opener = null
  }

  // Keys in the reader must not reach the page, which has shortcuts of single letters.
  key(event) {
    event.stopPropagation()
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "f") {
      event.preventDefault()
      this.search.focus()
    }
  }

  fill() {
    clearTimeout(this.filling)
    const plain = this.text.length > MARKDOWN_LIMIT || isJson(this.text)
    this.parts = asParts(this.text, plain).map(([from, end]) => {
      const element = el("div", { class: plain ? "reader-part raw" : "reader-part prose" })
      element.style.containIntrinsicSize = `auto ${Math.ceil((end - from) * PX_PER_CHARACTER) + 20}px`
      return { element, from, end, shown: false, plain }
    })
    this.body.replaceChildren(...this.parts.map(({ element }) => element))
    this.draw(0)
  }

  draw(first) {
    const began = performance.now()
    let at = first
    for (; at < this.parts.length && (at === first || performance.now() - began < SLICE_MS); at += 1)
      this.drawPart(this.parts[at])
    if (at < this.parts.length) this.filling = setTimeout(() => this.draw(at))
    else this.body.dataset.whole = "true"
    if (at < this.parts.length) delete this.body.dataset.whole
    this.search.grown(at === this.parts.length)
  }

  drawPart(part) {
    const { element, from, end, plain } = part
    const text = this.text.slice(from, end)
    if (!plain) element.replaceChildren(renderMarkdown(text, { whole: this.text, from }))
    else if (this.parts.length === 1 && isJson(text)) element.replaceChildren(renderMarkdown(text))
    else {
      element.dir = "auto"
      element.textContent = visible(text)
    }
    part.shown = true
  }

  save(kind) {
    const type = kind === "md" ? "text/markdown" : "text/plain"
    const url = URL.createObjectURL(new Blob([this.text], { type: `${type};charset=utf-8` }))
    el("a", { href: url, download: `${this.name}.${kind}` }).click()
    setTimeout(() => URL.revokeObjectURL(url), 10_000)
  }
}

// Divides a long text into parts that are drawn one by one.

const PART = 6_000
// Largest length of a part that holds an uncut block. A longer block is cut.
const LONGEST = 60_000

// Returns `[from, end]` of each part. A part ends at a blank line outside code blocks, or at any line's end if `plain`.
function asParts(text, plain) {
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
