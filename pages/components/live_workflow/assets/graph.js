// The map of the run: vis-network holds the nodes, pan and zoom; we paint, and say which card is under the pointer. Live
// updates only repaint, so no node ever moves, and pan and zoom stay where the person left them.

import { el } from "./dom.js"
import { CARD_HEIGHT, drawBand, drawCard, drawEdge, readTheme } from "./draw.js"
import { drawEditedCard } from "./draw_edited.js"
import { pathKey, roundName } from "./format.js"
import { DataSet, Network } from "./vendor/vis-network.min.js"

// In the drawing's own pixels, which grow with the page's text.
const BASE_TEXT_PX = 14
const WIDEST_CARD = 214
const NARROWEST_CARD = 162
const NARROWEST_GAP = 26
const WIDEST_GAP = 130
const MARGIN = 14
const MARGIN_Y = 16
// A graph has so much from the beginning, and a share of what a window has more, as in style.css. A plan that needs more
// moves what is below it.
const LEAST_HEIGHT = 238
const LEAST_GROWS = 0.25
const USUAL_WINDOW_PX = 720
const MOST_HEIGHT = 456
// A graph that leaves the window less than this for all else, panes included, is drawn smaller, down to the scale at
// which it can still be read.
const REST_PX = 196
const MOST_SHARE = 0.5
const LEAST_SCALE = 0.78
const FADE_MS = 220
const STILL = "(prefers-reduced-motion: reduce)"
// The pointer may move this far during a click; more is a drag.
const SLIP_PX = 8

// Presented, four columns are whole at 1280 px beside the panel.
const PRESENTED_TEXT_PX = 15
const unit = () => {
  const { dataset } = document.documentElement
  const base = dataset.presenting === undefined ? BASE_TEXT_PX : PRESENTED_TEXT_PX
  return parseFloat(getComputedStyle(document.documentElement).fontSize) / base
}

function leastHeight() {
  return Math.min(MOST_HEIGHT, LEAST_HEIGHT * unit() + Math.max(0, innerHeight - USUAL_WINDOW_PX) * LEAST_GROWS)
}

export class Graph {
  constructor({ onSelect }) {
    this.canvasBox = el("div", { class: "graph-canvas", "aria-hidden": "true" })
    const zoom = (factor) => () => this.zoom(factor)
    this.element = el(
      "div",
      { class: "graph" },
      this.canvasBox,
      el(
        "div",
        { class: "zoom" },
        el("button", { type: "button", class: "quiet", "aria-label": "Zoom in", onclick: zoom(1.2) }, "+"),
        el("button", { type: "button", class: "quiet", "aria-label": "Zoom out", onclick: zoom(1 / 1.2) }, "−"),
        el("button", { type: "button", class: "quiet", "aria-label": "Fit", onclick: () => this.fit() }, "Fit"),
      ),
    )
    this.onSelect = onSelect
    this.editing = null // a GraphEdit, where the plan can be edited here
    this.nodes = new DataSet()
    this.places = new Map()
    this.comingSince = new Map()
    this.layout = null
    this.selected = null
    this.moved = false
    this.held = false // in a replay: the height stays as the whole plan needs it
    this.hovered = null
    this.pressed = null
    this.listen()
    this.resizing = new ResizeObserver(() => this.resized())
    this.resizing.observe(this.canvasBox)
  }

  destroy() {
    this.resizing.disconnect()
    this.network?.destroy()
    this.network = null
  }

  // Updates the model and theme to paint from; `layout` comes from the server.
  show(model, selected) {
    this.model = model
    const layout = model.edited?.layout ?? model.layout
    const changed = layout !== this.layout
    this.selected = selected
    if (changed) {
      this.layout = layout
      if (this.layout) this.place({ fades: true })
      else this.clear()
    }
    this.repaint()
  }

  // Clears the graph for another run, but keeps its height.
  clear() {
    this.comingSince.clear()
    this.nodes.clear()
    this.places.clear()
    this.moved = false
  }

  restyle(root) {
    this.theme = readTheme(root)
    this.repaint()
  }

  repaint() {
    if (this.queued) return
    this.queued = true
    requestAnimationFrame(() => {
      this.queued = false
      this.network?.redraw()
    })
  }

  resized() {
    if (this.layout && this.canvasBox.clientWidth !== this.placedWidth) this.place()
    // A canvas is empty after a change of size until it is painted again.
    this.repaint()
  }

  // Turns layers into pixels for the available width, and reserves the height.
  place({ fades = false } = {}) {
    const width = this.canvasBox.clientWidth
    if (!width || !this.layout) return
    this.placedWidth = width
    const { layers, top, bottom } = this.layout
    const grown = unit()
    const room = width / grown - 2 * MARGIN
    const fitting = layers ? (room - (layers - 1) * NARROWEST_GAP) / layers : WIDEST_CARD
    this.cardWidth = Math.max(NARROWEST_CARD, Math.min(WIDEST_CARD, fitting))
    const gap = layers > 1 ? (room - layers * this.cardWidth) / (layers - 1) : 0
    this.pitch = this.cardWidth + Math.max(NARROWEST_GAP, Math.min(WIDEST_GAP, gap))
    const content = { width: Math.max(layers - 1, 0) * this.pitch + this.cardWidth, height: bottom - top }
    const scale = grown * Math.min(1, room / content.width)
    const readable = content.height * Math.min(scale, grown * LEAST_SCALE) + 2 * MARGIN_Y
    const most = Math.min(MOST_HEIGHT, Math.max((innerHeight - REST_PX) * MOST_SHARE, readable))
    // A plan that is being written may need more room for a moment: what is below it moves only to keep it readable.
    const { planning } = this.model
    const least = ((this.held || planning) && this.canvasBox.clientHeight) || leastHeight()
    const wanted = planning ? readable : content.height * scale + 2 * MARGIN_Y
    const height = Math.max(least, Math.min(most, wanted))
    this.home = {
      position: { x: (Math.max(layers - 1, 0) * this.pitch) / 2, y: (top + bottom) / 2 },
      scale: Math.min(scale, (height - 2 * MARGIN_Y) / content.height),
    }
    this.canvasBox.style.height = `${Math.round(height)}px`
    this.network?.setSize("100%", "100%")
    const grows = this.places.size > 0
    const changed = this.setNodes()
    const eased = fades && grows && changed.length > 0 && !document.hidden && !matchMedia(STILL).matches
    if (eased) for (const { id } of changed) this.comingSince.set(id, performance.now())
    this.repaint()
    if (!this.moved) this.fit(eased)
  }

  // Moves every card to its place in the layout at once, because only a whole layout keeps cards apart. New and moved
  // cards (only a plan that is still being written moves cards) fade in there. Returns these cards.
  setNodes() {
    const wanted = this.layout.nodes.map((node) => ({
      ...node,
      x: node.layer * this.pitch,
      ctxRenderer: (painting) => this.paintNode(painting),
    }))
    const gone = this.nodes.getIds().filter((id) => !wanted.some((node) => node.id === id))
    if (gone.length) this.nodes.remove(gone)
    const from = this.places
    this.places = new Map(wanted.map((node) => [node.id, { x: node.x, y: node.y }]))
    const moved = wanted.filter(({ id, x, y }) => from.get(id)?.x !== x || from.get(id)?.y !== y)
    this.nodes.update(moved)
    if (!this.network) this.start()
    return moved
  }

  // Returns how much of a fading card is visible, 0 to 1.
  opacity(id) {
    if (!this.comingSince.has(id)) return 1
    const share = (performance.now() - this.comingSince.get(id)) / FADE_MS
    if (share >= 1) this.comingSince.delete(id)
    else this.repaint()
    return Math.min(1, 0.2 + 0.8 * share)
  }

  start() {
    const options = {
      physics: false,
      autoResize: true,
      layout: { randomSeed: 1 },
      interaction: {
        dragNodes: false,
        dragView: true,
        zoomView: false,
        hover: false,
        keyboard: false,
        selectable: false,
        tooltipDelay: 1e9,
      },
    }
    this.network = new Network(this.canvasBox, { nodes: this.nodes, edges: new DataSet() }, options)
    // For the keyboard the graph is the buttons below it: a stop here would show no focus and do nothing.
    this.canvasBox.firstElementChild.tabIndex = -1
    this.network.on("beforeDrawing", (ctx) => this.paintEdges(ctx))
    this.network.on("afterDrawing", (ctx) => this.editing?.paint(ctx))
    this.network.on("dragEnd", ({ event }) => (this.moved ||= event.distance > SLIP_PX))
    this.fit()
  }

  // vis treats a node that we paint as a square of 50 pixels until it is painted in another state, and a click on a
  // busy page as a long press. So the browser's own click counts, whenever it comes, for the card that was pressed.
  listen() {
    const box = this.canvasBox
    const press = (event) => {
      this.pressed = { id: this.cardAt(event), x: event.clientX, y: event.clientY }
    }
    box.addEventListener("pointerdown", press, { capture: true })
    box.addEventListener("click", (event) => {
      const { pressed } = this
      this.pressed = null
      if (!pressed || Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) > SLIP_PX) return
      if (pressed.id !== null) this.onSelect(pressed.id)
      else this.editing?.clicked(event)
    })
    box.addEventListener("pointermove", (event) => {
      if (event.buttons === 0) this.hover(this.cardAt(event), this.editing?.cursorAt(event))
    })
    box.addEventListener("pointerleave", () => this.hover(null))
    box.addEventListener("wheel", (event) => this.wheel(event), { passive: false })
  }

  // Returns the step whose card is under the pointer, or null.
  cardAt(event) {
    return this.network ? this.cardAtPoint(this.pointOf(event)) : null
  }

  // Returns where the pointer is in the drawing.
  pointOf({ clientX, clientY }) {
    const { left, top } = this.canvasBox.getBoundingClientRect()
    return this.network.DOMtoCanvas({ x: clientX - left, y: clientY - top })
  }

  cardAtPoint(at) {
    const covers = ([, { x, y }]) => Math.abs(at.x - x) <= this.cardWidth / 2 && Math.abs(at.y - y) <= CARD_HEIGHT / 2
    return [...this.places].findLast(covers)?.[0] ?? null
  }

  // `cursor`: what tells more than that there is a card.
  hover(id, cursor = null) {
    this.canvasBox.style.cursor = cursor ?? (id === null ? "" : "pointer")
    if (id === this.hovered) return
    this.hovered = id
    this.repaint()
  }

  // The wheel scrolls the page; with Ctrl (or a pinch) it zooms.
  wheel(event) {
    if (!event.ctrlKey) return
    event.preventDefault()
    this.zoom(event.deltaY < 0 ? 1.08 : 1 / 1.08)
  }

  zoom(factor) {
    if (!this.network) return
    this.moved = true
    const scale = Math.max(0.3, Math.min(2.5, this.network.getScale() * factor))
    this.network.moveTo({ scale, animation: false })
  }

  // `eased`: the view as a whole glides, so that cards keep their distances.
  fit(eased = false) {
    this.moved = false
    const animation = eased === true ? { duration: FADE_MS, easingFunction: "easeOutQuad" } : false
    this.network?.moveTo({ ...this.home, animation })
  }

  paintNode({ ctx, id, x, y }) {
    const width = this.cardWidth
    return {
      drawNode: () => {
        const edited = this.model.edited && this.model.editedStep(id)
        const step = edited ?? this.model.step(id)
        if (!step || !this.theme) return
        const painting = { x, y, width, step, theme: this.theme, model: this.model }
        const agentIndex = this.model.agentIndex(step.agent)
        const phase = (performance.now() / 500) % (2 * Math.PI)
        const marks = { agentIndex, phase, selected: id === this.selected, hover: id === this.hovered }
        ctx.globalAlpha = this.opacity(id)
        const draw = edited ? drawEditedCard : drawCard
        draw(ctx, { ...painting, ...marks })
      },
      nodeDimensions: { width, height: CARD_HEIGHT },
    }
  }

  // Returns the bounds of all that is drawn.
  extent() {
    const { layers, top, bottom } = this.layout
    return { left: -this.cardWidth / 2, right: (layers - 1) * this.pitch + this.cardWidth / 2, top, bottom }
  }

  // Returns how much room the canvas has at the right of a card, in pixels.
  roomRight(key) {
    const { x, y } = this.places.get(key) ?? { x: 0, y: 0 }
    const edge = this.network?.canvasToDOM({ x: x + this.cardWidth / 2, y }).x ?? 0
    return this.canvasBox.clientWidth - edge
  }

  // Returns the middle of each column and the width of its cards.
  grid() {
    return { at: (layer) => layer * this.pitch, width: this.cardWidth }
  }

  paintEdges(ctx) {
    if (!this.theme || !this.layout) return
    const { at, width } = this.grid()
    for (const band of this.layout.bands) {
      const opener = this.places.get(pathKey(band.path))
      const round = this.model.rounds.get(pathKey(band.path))
      const label = roundLabel(band, round)
      const left = at(band.first) - this.cardWidth / 2 - 16
      const right = at(band.last) + this.cardWidth / 2 + 16
      drawBand(ctx, { left, right, band, label, opener, theme: this.theme })
    }
    const granted = (edge) => edge.to === this.selected && edge.change !== "lost"
    // The selected step's inputs are painted last, over the other edges.
    for (const edge of this.layout.edges.toSorted((a, b) => granted(a) - granted(b))) {
      const from = this.places.get(edge.from)
      const to = this.places.get(edge.to)
      const marks = { granted: granted(edge), theme: this.theme }
      if (from && to) drawEdge(ctx, { edge, from, to, at, width, ...marks })
    }
  }
}

function roundLabel(band, round) {
  const state = {
    planning: "being planned",
    stopped: "stopped: the previous answer is kept",
    rejected: "plan rejected",
    unfinished: "plan not finished",
  }
  const note = state[round?.status] ?? ""
  const name = roundName(band.path)
  return `${name[0].toUpperCase()}${name.slice(1)} · opened by step ${pathKey(band.path)}${note ? ` · ${note}` : ""}`
}
