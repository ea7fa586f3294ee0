// The story's graph: cards and curves of the page's own elements, because nothing in it is zoomed, dragged or edited.

import { FULL, arrange } from "./arrange.js"
import { el, setText } from "./dom.js"
import { pullOf } from "./edge_path.js"
import { plain } from "./fold.js"
import { seconds } from "./format.js"
import { STEP_STATUS, shownStatus } from "./status.js"
import { withoutTask } from "./task_words.js"
import { isolated, visible } from "./text.js"

// In pixels at a text of 14 px, as everywhere in the graph.
const SIZE = { ...FULL, widest: 240, apart: [20, 36, 60], leastGap: 8 }
const HEIGHTS = [104, 88, 72, 60]
const MARGIN_X = 24
const MARGIN_Y = 14
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

  // Lays the cards out for the room that there is: as tall as fits.
  place() {
    const { clientWidth: width, clientHeight: height } = this.element
    if (!this.told || !width || !height) return
    const grown = parseFloat(getComputedStyle(document.documentElement).fontSize) / BASE_TEXT_PX
    const room = { width: width / grown - 2 * MARGIN_X, height: height / grown - 2 * MARGIN_Y }
    const laid = HEIGHTS.map((tall) => arrange(plain(this.told.layout, tall), { ...SIZE, height: tall }, room))
    const found = laid.find(({ fits }) => fits) ?? laid.at(-1)
    const byX = (x) => width / 2 + (x - (found.left + found.right) / 2) * grown
    const byY = (y) => height / 2 + (y - (found.top + found.bottom) / 2) * grown
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`)
    for (const { id, x, y, width: wide, height: tall } of found.cells) {
      const { style } = this.parts[Number(id)].card
      const [left, top] = [byX(x - wide / 2), byY(y - tall / 2)]
      Object.assign(style, px({ left, top, width: wide * grown, height: tall * grown }))
    }
    const courses = new Map(found.edges.map(({ from, to, path }) => [`${from} ${to}`, path]))
    for (const { edge, path, gained } of this.edges) {
      const points = Object.entries(courses.get(`${edge.from} ${edge.to}`))
      const course = Object.fromEntries(points.map(([name, at]) => [name, at && { x: byX(at.x), y: byY(at.y) }]))
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
