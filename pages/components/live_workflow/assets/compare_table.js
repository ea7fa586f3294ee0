// Every step of two compared runs: what became of it in the plan, and its output word by word.

import { el } from "./dom.js"
import { agentColour } from "./format.js"
import { isJson } from "./json_text.js"
import { CLOSES, EACH, OPENS, marked, skippedWords } from "./marked_text.js"
import { withChips } from "./task_words.js"
import { isolated, renderMarkdown, visible } from "./text.js"

const HEADS = ["Step", "Plan", "What changed", "Output, word by word"]
const BY = {
  signature: "Only the signature of the simulated worker is another one.",
  line: "Long lines are shown as replaced, without a word diff.",
  whole: "This text is so long that what differs stands as replaced, without a comparison word by word.",
}

export class CompareTable {
  constructor({ onSelect }) {
    this.onSelect = onSelect
    this.rows = new Map()
    this.beside = toggle("Side by side", (on) => this.element.classList.toggle("beside", on))
    this.short = toggle("Only differences", (on) => this.element.classList.toggle("short", on))
    const tools = el("header", { class: "compared-tools" }, el("b", {}, "Steps"), el("span", { class: "spring" }))
    tools.append(this.short, this.beside)
    this.body = el("div", { class: "compared-rows", role: "table", "aria-label": "Steps of both runs" })
    this.none = el("p", { class: "muted compared-none" }, "No step differs.")
    this.element = el("section", { class: "card compared-table", "aria-label": "Steps" }, tools, this.body, this.none)
  }

  take({ rows }, agentIndex) {
    this.rows = new Map(rows.map((row) => [row.key, this.row(row, agentIndex)]))
    const head = el(
      "div",
      { class: "compared-row head", role: "row" },
      HEADS.map((name) => el("div", { role: "columnheader" }, name)),
    )
    this.body.replaceChildren(head, ...this.rows.values())
    this.body.hidden = rows.length === 0
    this.element.classList.toggle("all-same", !rows.some(differs))
  }

  row(row, agentIndex) {
    const index = agentIndex(row.agent)
    const name = `${row.label} · ${isolated(row.agents)}`
    return el(
      "div",
      {
        class: `compared-row${differs(row) ? "" : " same"}`,
        role: "row",
        tabindex: "-1",
        "data-step": row.key,
        style: `--depth: ${row.depth}; --agent: ${agentColour(index)}`,
        "aria-label": `Step ${name}: plan ${row.plan}, output ${row.said}`,
        onclick: () => this.onSelect(row.key),
      },
      el("div", { role: "cell", class: "compared-step" }, el("i", { class: "dot" }), el("b", {}, name)),
      el("div", { role: "cell" }, row.plan),
      el(
        "div",
        { role: "cell" },
        row.words && el("div", { class: "said" }, row.words),
        row.parts.map((part) =>
          el("div", { class: "compared-part" }, el("span", { class: "muted" }, part.name), texts(part)),
        ),
      ),
      el("div", { role: "cell" }, el("div", { class: "said" }, row.said), row.output && texts(row.output)),
    )
  }

  select(key) {
    for (const [own, row] of this.rows) row.classList.toggle("selected", own === key)
  }

  bring(key) {
    this.rows.get(key)?.scrollIntoView({ block: "nearest" })
  }

  focus(key) {
    const row = this.rows.get(key)
    row?.focus({ preventScroll: true })
    row?.scrollIntoView({ block: "nearest" })
  }
}

const differs = ({ plan, changed }) => plan !== "same" || changed

function toggle(name, onChange) {
  const button = el("button", { type: "button", class: "quiet", "aria-pressed": "false" }, name)
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true"
    button.setAttribute("aria-pressed", on ? "true" : "false")
    onChange(on)
  })
  return button
}

// Returns a text as one, and as two beside each other; the stylesheet shows one of the two forms. An output is drawn as
// it reads, without the signs of its Markdown.
function texts({ name, by, pieces }) {
  const draw = name === "output" ? rendered : (some) => some.map(pieceElement)
  const look = name === "output" ? " prose" : ""
  const form = (which, kinds) =>
    el("div", { class: `text ${which}${look}`, dir: "auto" }, draw(pieces.filter((piece) => shown(piece, kinds))))
  return el(
    "div",
    { class: "compared-texts" },
    BY[by] && el("p", { class: "muted small" }, BY[by]),
    form("together", ["same", "removed", "added"]),
    form("alone", ["same", "removed"]),
    form("alone", ["same", "added"]),
  )
}

const shown = ([kind, , , of], kinds) =>
  kind === "skipped" ? of === "more" || kinds.includes(of) : kinds.includes(kind)

const TAG = { removed: "del", added: "ins", same: "span" }

function pieceElement([kind, text, words, of]) {
  if (kind === "skipped") return el("span", { class: "skipped" }, ` … ${skippedWords(words, of)} … `)
  return el(TAG[kind], {}, withChips(text, visible))
}

function rendered(pieces) {
  // JSON is no Markdown: its signs are its own.
  if (isJson(pieces.map(([, text]) => text).join(""))) return [el("pre", {}, pieces.map(pieceElement))]
  const content = renderMarkdown(marked(pieces, visible))
  for (const link of content.querySelectorAll("a")) link.replaceWith(...link.childNodes)
  const walker = document.createTreeWalker(content, NodeFilter.SHOW_TEXT)
  const nodes = []
  while (walker.nextNode()) nodes.push(walker.currentNode)
  let kind = null
  for (const node of nodes) {
    const formula = node.parentElement?.closest(".formula")
    if (formula && !EACH.test(node.data)) {
      if (kind) formula.classList.add(kind)
      continue
    }
    const parts = node.data.split(EACH)
    const drawn = []
    for (const part of parts) {
      const opened = Object.keys(OPENS).find((each) => OPENS[each] === part)
      if (opened) kind = opened
      else if (part === CLOSES) kind = null
      else if (part) drawn.push(kind && part.trim() ? markElement(kind, part) : part)
    }
    if (parts.length > 1 || kind) node.replaceWith(...drawn)
  }
  return [content]
}

const markElement = (kind, text) =>
  kind === "skipped" ? el("span", { class: "skipped" }, text) : el(TAG[kind], {}, text)
