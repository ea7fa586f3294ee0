// Model output is data. It is shown as text or as inert markdown: no HTML, no script, no image, nothing fetched.

import MarkdownIt from "./vendor/markdown-it.min.js"

const MARKDOWN_LIMIT = 200_000
// What text stands in, each with the direction of its own first letter; code reads from the left.
const BLOCKS = "p, h1, h2, h3, h4, h5, h6, td, th"
// `auto` does not look into parts that have a direction of their own.
const HOLDERS = "blockquote, ul, ol, li, table"
const ALLOWED_TAGS = new Set(
  ("p br hr h1 h2 h3 h4 h5 h6 strong em s code pre blockquote ul ol li table thead tbody tr th td a").split(" "),
)
const ALLOWED_ATTRIBUTES = new Set(["href", "start", "style"])
const ALLOWED_STYLE = /^text-align: ?(left|center|right);?$/

const markdown = new MarkdownIt({ html: false, linkify: false, breaks: true, typographer: false })
markdown.disable("image")
markdown.validateLink = (url) => /^https?:\/\//i.test(url)

// Controls that a terminal or the bidirectional algorithm would act on, and characters that hide text from a reader.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g
const TRICKS = /[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]|[\u{e0000}-\u{e007f}]/gu

export function visible(text) {
  return text.replace(/\r\n?/g, "\n").replace(CONTROLS, named).replace(TRICKS, named)
}

// As `dir="auto"` tells it: by the first letter that has a direction.
export function rightToLeft(text) {
  const [first] = /\p{L}/u.exec(text) ?? [""]
  return /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u.test(first)
}

const named = (character) => `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`

export function renderMarkdown(text) {
  const shown = visible(text)
  if (shown.length > MARKDOWN_LIMIT) {
    const pre = document.createElement("pre")
    pre.textContent = shown
    const fragment = document.createDocumentFragment()
    fragment.append(pre)
    return fragment
  }
  const template = document.createElement("template")
  template.innerHTML = markdown.render(shown)
  scrub(template.content)
  for (const block of template.content.querySelectorAll(BLOCKS)) block.setAttribute("dir", "auto")
  for (const holder of template.content.querySelectorAll(HOLDERS)) {
    holder.setAttribute("dir", rightToLeft(holder.textContent) ? "rtl" : "ltr")
  }
  return template.content
}

// A second lock behind markdown-it's own escaping: whatever is not on the list becomes text.
function scrub(root) {
  for (const element of [...root.querySelectorAll("*")]) {
    if (!ALLOWED_TAGS.has(element.localName)) {
      element.replaceWith(document.createTextNode(element.textContent))
      continue
    }
    for (const { name, value } of [...element.attributes]) {
      if (!ALLOWED_ATTRIBUTES.has(name) || (name === "style" && !ALLOWED_STYLE.test(value))) element.removeAttribute(name)
    }
    if (element.localName === "a") {
      element.setAttribute("rel", "noopener noreferrer nofollow")
      element.setAttribute("target", "_blank")
      element.setAttribute("title", element.getAttribute("href") ?? "")
    }
  }
}

// Markdown that grows: finished blocks are rendered once, only the last block is rendered again at each piece of text.
export class StreamedMarkdown {
  constructor(element) {
    this.element = element
    this.tail = document.createElement("div")
    this.tail.className = "tail"
    this.reset()
  }

  reset() {
    this.text = ""
    this.settled = 0
    this.done = false
    this.element.replaceChildren(this.tail)
    this.tail.replaceChildren()
  }

  // Shows `text`; `done`: no more will come, so that lists and tables spanning blocks are joined.
  show(text, done) {
    if (text === this.text && done === this.done) return
    // The first text may follow a placeholder that stood in the element.
    if (this.text === "" || this.done || !text.startsWith(this.text)) this.reset()
    this.text = text
    this.done = done
    if (done) {
      this.element.replaceChildren(renderMarkdown(text))
      return
    }
    const boundary = settledLength(text, this.settled)
    if (boundary > this.settled) {
      this.tail.before(renderMarkdown(text.slice(this.settled, boundary)))
      this.settled = boundary
    }
    this.tail.replaceChildren(renderMarkdown(text.slice(this.settled)))
  }
}

// The end of the last blank line outside a code fence, from `start`.
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
