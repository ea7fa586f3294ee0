// The story's graph: cards and curves of the page's own elements, because nothing in it is zoomed, dragged or edited.

import { el, setText } from "./dom.js"
import { ARROW, pullOf } from "./edge_path.js"
import { seconds } from "./format.js"
import { STEP_STATUS, shownStatus } from "./status.js"
import { withoutTask } from "./task_words.js"
import { isolated, visible } from "./text.js"

// In pixels at a text of 14 px, as everywhere in the graph.
const CARD_HEIGHT = 88
const MARGIN_X = 24
const MARGIN_Y = 18
const NARROWEST_CARD = 148
const WIDEST_CARD = 240
const CARD_SHARE = 0.79 // of a column
const MOST_SCALE = 1.4
const BASE_TEXT_PX = 14
const SVG = "http://www.w3.org/2000/svg"
const BOXES = { completed: "done", reused: "reused", running: "running", waiting: "waits" }

export class StoryGraph {
  constructor() {
    this.svg = document.createElementNS(SVG, "svg")
    this.svg.setAttribute("aria-hidden", "true")
    this.cards = el("ol", { class: "story-cards", "aria-label": "Steps" })
    this.label = el("span", { class: "story-gained" })
    this.element = el("div", { class: "story-map" }, this.svg, this.cards, this.label)
    this.watching = new ResizeObserver(() => this.place())
    this.watching.observe(this.element)
  }

  destroy() {
    this.watching.disconnect()
  }

  take(told) {
    this.told = told
    this.parts = told.steps.map(({ agent, instruction }, index) => {
      const status = el("span", { class: "story-status" })
      const figures = el("span", {})
      const value = el("b", {})
      const dot = el("i", { class: "dot", style: `--agent: var(--agent-${told.agents.indexOf(agent) % 8})` })
      const title = el("div", { class: "story-title" }, dot, el("span", {}, `${index} · ${isolated(agent)}`), status)
      const said = el("div", { class: "story-told" }, visible(withoutTask(instruction)))
      const card = el("li", { class: "story-card" }, title, said, el("div", { class: "story-foot" }, figures, value))
      return { card, status, figures, value }
    })
    this.cards.replaceChildren(...this.parts.map(({ card }) => card))
    this.edges = told.layout.edges.map((edge) => {
      const path = document.createElementNS(SVG, "path")
      const gained = Number(edge.to) === told.step && told.gained.includes(Number(edge.from))
      path.setAttribute("class", gained ? "gained" : "")
      path.setAttribute("marker-end", gained ? "url(#story-gained)" : "url(#story-read)")
      return { edge, path, gained }
    })
    this.svg.replaceChildren(...["read", "gained"].map(marker), ...this.edges.map(({ path }) => path))
    const reads = told.gained.map((index) => `step ${index}`).join(" and ")
    setText(this.label, `now also reads ${reads}`)
    this.place()
  }

  // Turns layers into pixels for the room that there is.
  place() {
    const { clientWidth: width, clientHeight: height } = this.element
    if (!this.told || !width || !height) return
    const { nodes, layers, top, bottom } = this.told.layout
    const grown = parseFloat(getComputedStyle(document.documentElement).fontSize) / BASE_TEXT_PX
    const column = (width - 2 * MARGIN_X * grown) / layers
    const wide = Math.max(NARROWEST_CARD * grown, Math.min(WIDEST_CARD * grown, column * CARD_SHARE))
    const pitch = layers > 1 ? (width - 2 * MARGIN_X * grown - wide) / (layers - 1) : 0
    const fits = (height - 2 * MARGIN_Y * grown) / (bottom - top)
    const scale = Math.min(grown * MOST_SCALE, fits)
    const tall = Math.min(CARD_HEIGHT * scale, CARD_HEIGHT * grown * MOST_SCALE)
    const middle = height / 2 - ((top + bottom) / 2) * scale
    const at = (layer) => MARGIN_X * grown + wide / 2 + layer * pitch
    const places = new Map(nodes.map(({ id, layer, y }) => [id, { x: at(layer), y: middle + y * scale }]))
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`)
    for (const [id, { x, y }] of places) {
      const { style } = this.parts[Number(id)].card
      Object.assign(style, px({ left: x - wide / 2, top: y - tall / 2, width: wide, height: tall }))
    }
    for (const { edge, path, gained } of this.edges) {
      const lane = edge.lane && { ...edge.lane, y: middle + edge.lane.y * scale }
      const scaled = { lane, source_dy: edge.source_dy * scale, target_dy: edge.target_dy * scale }
      const points = { from: places.get(edge.from), to: places.get(edge.to) }
      const course = courseOf({ edge: scaled, ...points, at, width: wide })
      path.setAttribute("d", drawn(course))
      if (gained) this.placeLabel(course, height)
    }
  }

  placeLabel({ start, enter, bend, tip }, height) {
    const from = enter ?? start
    const to = enter ? bend : tip
    const top = Math.min(Math.max(from.y, to.y) + 9, height - this.label.offsetHeight - 2)
    Object.assign(this.label.style, px({ left: (from.x + to.x) / 2, top }))
  }

  // `model`: of the run that is shown. `changed`: whether the change is made. `values`: those of its outputs.
  show(model, { changed, values, selected }) {
    this.element.toggleAttribute("data-changed", changed)
    this.parts.forEach(({ card, status, figures, value }, index) => {
      const step = model.step(String(index))
      const shown = step ? shownStatus(step) : "waiting"
      card.className = `story-card ${BOXES[shown] ?? "waits"}${selected === index ? " selected" : ""}`
      setText(status, STEP_STATUS[shown].glyph)
      status.title = STEP_STATUS[shown].word
      const told = { reused: "reused", waiting: "waiting" }[shown]
      setText(figures, told ?? seconds(model.stepMs(step)))
      const over = shown === "completed" || shown === "reused"
      setText(value, (over && values[index]) || "")
    })
  }
}

// Returns the points that lead an edge: `enter` and `bend` bound its lane past the cards of skipped layers, if it has
// one. `at(layer)` gives the middle of a column.
function courseOf({ edge, from, to, at, width }) {
  const start = { x: from.x + width / 2, y: from.y + edge.source_dy }
  const end = { x: to.x - width / 2 - 2, y: to.y + edge.target_dy }
  const tip = { x: end.x - ARROW + 1, y: end.y }
  if (!edge.lane) return { start, enter: null, bend: start, tip, end }
  const { first, last, y } = edge.lane
  return { start, enter: { x: at(first) - width / 2, y }, bend: { x: at(last) + width / 2, y }, tip, end }
}

const px = (lengths) => Object.fromEntries(Object.entries(lengths).map(([name, value]) => [name, `${value}px`]))

function drawn({ start, enter, bend, end }) {
  const curve = (from, to) => {
    const pull = Math.min(pullOf(from, to), Math.abs(to.x - from.x))
    return `C${from.x + pull} ${from.y} ${to.x - pull} ${to.y} ${to.x} ${to.y}`
  }
  const begins = `M${start.x} ${start.y}`
  return enter
    ? `${begins}${curve(start, enter)}L${bend.x} ${bend.y}${curve(bend, end)}`
    : `${begins}${curve(start, end)}`
}

function marker(name) {
  const found = document.createElementNS(SVG, "marker")
  const size = {
    viewBox: "0 0 8 8",
    refX: 7,
    refY: 4,
    markerUnits: "userSpaceOnUse",
    markerWidth: 10,
    markerHeight: 10,
  }
  for (const [key, value] of Object.entries({ id: `story-${name}`, orient: "auto", ...size })) {
    found.setAttribute(key, value)
  }
  const head = document.createElementNS(SVG, "path")
  head.setAttribute("d", "M0 .8L7.5 4L0 7.2z")
  head.setAttribute("class", `head ${name}`)
  found.append(head)
  return found
}
