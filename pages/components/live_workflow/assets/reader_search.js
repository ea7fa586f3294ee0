// Finds words in the reader's text as it is shown, and in the formulas as they were written, counts them, and steps
// from one to the next. The browser's own search cannot find text that is not laid out.

import { el, setText } from "./dom.js"
import { count } from "./format.js"

const MARKED = 500
const WAIT_MS = 120

export class Search {
  constructor({ scroller, parts }) {
    this.scroller = scroller
    this.parts = parts
    this.input = el("input", {
      type: "search",
      placeholder: "Search",
      "aria-label": "Search in this text",
      title: "Search (Ctrl+F); Enter for the next one, Shift+Enter for the one before",
    })
    this.found = el("span", { class: "muted number found", role: "status" })
    const step = (by, name, glyph) =>
      el(
        "button",
        { type: "button", class: "quiet", "aria-label": name, title: name, onclick: () => this.step(by) },
        glyph,
      )
    this.element = el(
      "div",
      { class: "reader-search", role: "search" },
      this.input,
      this.found,
      step(-1, "Previous match", "↑"),
      step(1, "Next match", "↓"),
    )
    this.input.addEventListener("input", () => {
      clearTimeout(this.waiting)
      this.waiting = setTimeout(() => this.look(), WAIT_MS)
    })
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return
      event.preventDefault()
      this.step(event.shiftKey ? -1 : 1)
    })
    this.matches = []
    this.at = -1
    this.index = new Map()
  }

  focus() {
    this.input.focus()
    this.input.select()
  }

  clear() {
    clearTimeout(this.waiting)
    this.input.value = ""
    this.index.clear()
    this.sought = ""
    this.matches = []
    this.at = -1
    this.mark()
    setText(this.found, "")
  }

  // Called when more of the text has been drawn.
  grown(whole) {
    this.whole = whole
    if (this.sought && whole) this.look()
  }

  look() {
    clearTimeout(this.waiting)
    this.sought = folded(this.input.value)
    this.matches = []
    this.at = -1
    if (this.sought) {
      this.parts().forEach((part, number) => {
        if (!part.shown) return
        const { text } = this.indexOf(part)
        for (let at = text.indexOf(this.sought); at >= 0; at = text.indexOf(this.sought, at + this.sought.length))
          this.matches.push([number, at])
      })
    }
    if (this.matches.length) this.step(1)
    else this.mark()
    this.say()
  }

  step(by) {
    if (folded(this.input.value) !== this.sought) return this.look()
    if (!this.matches.length) return
    this.at = (this.at + by + this.matches.length) % this.matches.length
    const [number] = this.matches[this.at]
    const { element } = this.parts()[number]
    const range = this.rangeOf(this.matches[this.at])
    // Hidden parts have no position until they are laid out.
    element.style.contentVisibility = "visible"
    const scroller = this.scroller()
    const place = range.getBoundingClientRect()
    const box = scroller.getBoundingClientRect()
    scroller.scrollTop += place.top - box.top - box.height / 3
    element.style.contentVisibility = ""
    this.mark()
    this.say()
  }

  say() {
    const more = this.whole ? "" : "+"
    setText(
      this.found,
      this.sought
        ? this.matches.length
          ? `${count(this.at + 1)} of ${count(this.matches.length)}${more}`
          : `none${more && " yet"}`
        : "",
    )
  }

  // Marks the chosen match and the matches around it.
  mark() {
    CSS.highlights?.delete("reader-match")
    CSS.highlights?.delete("reader-current")
    if (!CSS.highlights || this.at < 0) return
    const from = Math.max(0, this.at - MARKED)
    const around = this.matches.slice(from, this.at + MARKED).filter((_, index) => from + index !== this.at)
    CSS.highlights.set("reader-match", new Highlight(...around.map((match) => this.rangeOf(match))))
    CSS.highlights.set("reader-current", new Highlight(this.rangeOf(this.matches[this.at])))
  }

  rangeOf([number, at]) {
    const { pieces } = this.indexOf(this.parts()[number])
    const range = document.createRange()
    const [first, last] = [pieceAt(pieces, at), pieceAt(pieces, at + this.sought.length - 1)]
    if (first.formula) range.setStartBefore(first.node)
    else range.setStart(first.node, Math.min(at - first.from, first.node.length))
    if (last.formula) range.setEndAfter(last.node)
    else range.setEnd(last.node, Math.min(at + this.sought.length - last.from, last.node.length))
    return range
  }

  // Returns the text of a part as one string, and the node of each piece.
  indexOf(part) {
    const known = this.index.get(part)
    // A formula keeps its source when it is drawn meanwhile.
    if (known) return known
    const pieces = []
    let text = ""
    const add = (node, said, formula) => {
      pieces.push({ from: text.length, node, formula })
      text += folded(said)
    }
    const walk = (node) => {
      for (const child of node.childNodes) {
        if (child.nodeType === Node.TEXT_NODE) add(child, child.data, false)
        else if (child.classList?.contains("formula")) add(child, child.dataset.source, true)
        else walk(child)
      }
    }
    walk(part.element)
    const made = { text, pieces }
    this.index.set(part, made)
    return made
  }
}

// Returns the text in lower case, with each character at its old place.
function folded(text) {
  const small = text.toLowerCase()
  return small.length === text.length
    ? small
    : [...text].map((each) => (each.toLowerCase().length === each.length ? each.toLowerCase() : each)).join("")
}

function pieceAt(pieces, at) {
  let [low, high] = [0, pieces.length - 1]
  while (low < high) {
    const middle = (low + high + 1) >> 1
    if (pieces[middle].from <= at) low = middle
    else high = middle - 1
  }
  return pieces[low]
}
