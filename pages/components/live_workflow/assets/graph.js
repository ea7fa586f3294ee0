// The map of the run: vis-network holds the nodes, pan and zoom; we paint, and say which card is under the pointer. Live
// updates only repaint, so no node ever moves, and pan and zoom stay where the person left them.

import { el, setText } from "./dom.js"
import { BOXED, drawBand, drawCard, drawEdge, readTheme } from "./draw.js"
import { drawEditedCard } from "./draw_edited.js"
import { drawStack, stackWords } from "./draw_stack.js"
import { choose, foldKind, groupOf } from "./fold.js"
import { pathKey, roundName } from "./format.js"
import { GraphList } from "./graph_list.js"
import { GraphMap } from "./graph_map.js"
import { shownStatus } from "./status.js"
import { DataSet, Network } from "./vendor/vis-network.min.js"

// In the drawing's own pixels, which grow with the page's text. No text is ever drawn smaller than that.
const BASE_TEXT_PX = 14
const MARGIN = 12
const MARGIN_Y = 12
// A graph has so much from the beginning, and a share of what a window has more, as in style.css. A plan that needs more
// moves what is below it, up to what the window leaves beside all else, panes included.
const LEAST_HEIGHT = 238
const LEAST_GROWS = 0.25
const USUAL_WINDOW_PX = 720
const MOST_LEAST_PX = 456
const REST_PX = 400
// Where the page is one column and scrolls.
const NARROW_PX = 900
const NARROW_HEIGHT = 320
const MOST_ZOOM = 2.5
const FADE_MS = 220
const STILL = "(prefers-reduced-motion: reduce)"
// The pointer may move this far during a click; more is a drag.
const SLIP_PX = 8
// Words below the graph need so much.
const HINT_PX = 26
const FOLDED = "Parallel steps are folded. Click a stack to open it."
const NAMES = { graph: () => "Graph", folded: () => "Folded", all: (count) => `All ${count}`, list: () => "List" }

// Presented, four columns are whole at 1280 px beside the panel.
const PRESENTED_TEXT_PX = 15
const unit = () => {
  const { dataset } = document.documentElement
  const base = dataset.presenting === undefined ? BASE_TEXT_PX : PRESENTED_TEXT_PX
  return parseFloat(getComputedStyle(document.documentElement).fontSize) / base
}

function leastHeight() {
  return Math.min(MOST_LEAST_PX, LEAST_HEIGHT * unit() + Math.max(0, innerHeight - USUAL_WINDOW_PX) * LEAST_GROWS)
}

function mostHeight() {
  const beside = innerWidth <= NARROW_PX ? NARROW_HEIGHT : innerHeight - REST_PX * unit()
  return Math.max(leastHeight(), beside)
}

export class Graph {
  // `onView` hears that another view is shown. Without `onOpen`, which opens a step of the list, there is no list.
  constructor({ onSelect, onOpen = null, onView = () => {} }) {
    Object.assign(this, { onSelect, onView })
    this.canvasBox = el("div", { class: "graph-canvas", "aria-hidden": "true" })
    this.map = new GraphMap({ onMove: (position) => this.moveTo(position) })
    this.list = onOpen && new GraphList({ onSelect, onOpen })
    this.views = el("div", { class: "graph-views", role: "group", "aria-label": "View of the graph" })
    this.percent = el("span", { class: "number" })
    this.hint = el("span", { class: "graph-hint", "aria-hidden": "true", hidden: true }, FOLDED)
    this.element = el("div", { class: "graph" }, this.canvasBox, this.hint, this.map.element, this.list?.element)
    const zoom = (factor) => () => this.zoom(factor)
    this.smaller = zoomButton("Zoom out", "−", zoom(1 / 1.2))
    this.zoomed = el(
      "div",
      { class: "zoom" },
      this.smaller,
      this.percent,
      zoomButton("Zoom in", "+", zoom(1.2)),
      zoomButton("Fit", "Fit", () => this.fit()),
    )
    this.controls = el("div", { class: "graph-controls" }, this.views, this.zoomed)
    this.editing = null // a GraphEdit, where the plan can be edited here
    this.nodes = new DataSet()
    this.places = new Map() // the cells that are drawn, by their id: that of a step, or of a stack
    this.comingSince = new Map()
    this.layout = null
    this.arranged = null
    this.box = { width: 0, height: 0 } // what a frame would measure with the whole page
    this.view = "graph"
    this.wanted = null // the view that the person chose
    this.open = new Set() // the stacks that the person unfolded
    this.selected = null
    this.moved = false
    this.held = false // in a replay: the height stays as the whole plan needs it
    this.hovered = null
    this.pressed = null
    this.listen()
    this.resizing = new ResizeObserver(() => this.resized())
    this.resizing.observe(this.element)
    this.resizing.observe(this.canvasBox)
    this.windowed = () => this.resized()
    addEventListener("resize", this.windowed)
  }

  destroy() {
    removeEventListener("resize", this.windowed)
    this.resizing.disconnect()
    this.network?.destroy()
    this.network = null
  }

  // Updates the model and theme to paint from; `layout` comes from the server.
  show(model, selected) {
    this.model = model
    const layout = model.edited?.layout ?? model.layout
    const changed = layout !== this.layout
    const follows = selected !== this.selected
    this.selected = selected
    if (changed) {
      this.layout = layout
      if (this.layout) this.place({ fades: true })
      else this.clear()
    } else if (!this.settle() && follows) this.follow()
    if (this.view === "list") this.list.show(model, selected)
    this.repaint()
  }

  // Clears the graph for another run, but keeps its height.
  clear() {
    this.comingSince.clear()
    this.nodes.clear()
    this.places.clear()
    this.arranged = null
    this.open.clear()
    this.wanted = null
    this.moved = false
    this.map.hide()
  }

  // Lays the graph out anew if what it depends on has changed: steps that ended are folded, an editor opened. Says so.
  settle() {
    if (!this.layout || this.stateOf() === this.placedState) return false
    this.place()
    return true
  }

  // Returns all that the places depend on besides the server's layout and the window.
  stateOf() {
    const chosen = `${this.wanted}|${Boolean(this.editing?.active)}|${[...this.open]}`
    if (this.view !== "folded") return chosen
    return `${chosen}|${this.layout.nodes.map(({ id }) => this.kindOf(id)?.kind ?? id)}`
  }

  stepAt(key) {
    return this.model.edited ? this.model.editedStep(key) : this.model.step(key)
  }

  // Says with which steps one can be folded; null: it never is.
  kindOf(key) {
    const step = this.stepAt(key)
    if (!step || key === this.selected) return null
    const same = step.change || step.fate === "fault" ? null : "same"
    const kind = this.model.edited ? same : foldKind(shownStatus(step))
    return kind && { agent: step.agent, kind }
  }

  // Returns the stacks that are drawn, each with its steps and words.
  stacks() {
    if (this.view !== "folded" || !this.arranged) return []
    return this.arranged.cells
      .filter(({ stack }) => stack)
      .map((cell) => ({ ...cell, words: stackWords(cell, this.numbersOf(cell)), agent: cell.stack.agent }))
  }

  numbersOf({ keys }) {
    return keys.map((key) => `${this.model.edited ? (this.stepAt(key)?.number ?? key) : key}`)
  }

  unfold(id) {
    this.open.add(this.places.get(id).stack.group)
    this.settle()
    this.repaint()
  }

  // Folds the stack again that a step was in, and selects nothing of it. Returns its id; null: there was none.
  foldAgain(key) {
    const node = this.layout?.nodes.find(({ id }) => id === key)
    const group = node && groupOf(node, this.stepAt(key)?.agent)
    if (!this.open.has(group) || this.view !== "folded") return null
    this.open.delete(group)
    this.selected = null
    this.settle()
    this.repaint()
    return this.arranged.cells.find(({ stack }) => stack?.group === group)?.id ?? null
  }

  choose(view) {
    this.wanted = view
    if (view === "folded") this.open.clear()
    this.moved = false
    if (this.layout) this.place()
    if (this.view === "list") this.list.show(this.model, this.selected)
    this.onView()
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
    if (this.layout && `${this.element.clientWidth} ${innerHeight}` !== this.placedIn) this.place()
    // A canvas is empty after a change of size until it is painted again.
    this.repaint()
  }

  // Chooses the view for the room there is, lays the graph out, and reserves the height.
  place({ fades = false } = {}) {
    const width = this.element.clientWidth
    if (!width || !this.layout) return
    this.placedIn = `${width} ${innerHeight}`
    const grown = unit()
    const most = mostHeight()
    const room = { width: width / grown - 2 * MARGIN, height: most / grown - 2 * MARGIN_Y }
    const chosen = choose(this.layout, room, {
      wanted: this.wanted,
      kindOf: (key) => this.kindOf(key),
      agentOf: (key) => this.stepAt(key)?.agent ?? "",
      open: this.open,
      editing: Boolean(this.editing?.active),
      lists: this.list !== null,
    })
    const turned = chosen.view !== this.view
    this.view = chosen.view
    this.placedState = this.stateOf()
    this.showControls(chosen)
    this.reserve(chosen.arranged, most, grown)
    if (chosen.arranged) {
      const grows = this.places.size > 0 && !turned
      this.arranged = chosen.arranged
      this.scale = grown
      this.network?.setSize("100%", "100%")
      const come = this.setNodes()
      const eased = grows && come.length > 0 && !document.hidden && !matchMedia(STILL).matches
      if (eased)
        for (const { id } of come) if (fades || !this.layout.nodes.length) this.comingSince.set(id, performance.now())
      if (!this.moved || turned) this.fit(eased && fades)
    }
    this.repaint()
    if (turned) this.onView()
  }

  // While a plan is written, and in a replay, the height does not shrink. A graph that changes its form as it runs keeps
  // one height.
  reserve(arranged, most, grown) {
    const kept = ((this.held || this.model.planning) && this.canvasBox.clientHeight) || leastHeight()
    const fixed = ["folded", "all", "list"].includes(this.view)
    const wanted = fixed ? most : arranged.height * grown + 2 * MARGIN_Y * grown
    this.box = { width: this.element.clientWidth, height: Math.round(Math.max(kept, Math.min(most, wanted))) }
    const height = `${this.box.height}px`
    this.canvasBox.style.height = height
    const below = (this.box.height - (arranged?.height ?? 0) * grown) / 2
    this.hint.hidden = this.view !== "folded" || below < HINT_PX
    this.list?.element.style.setProperty("--height", height)
  }

  showControls({ view, views }) {
    this.element.dataset.view = this.controls.dataset.view = view
    this.controls.dataset.size = this.layout.nodes.length > 8 ? "large" : "small"
    const shown = views.map((name) => `${name} ${this.layout.nodes.length}`).join()
    if (shown !== this.shownViews) {
      this.shownViews = shown
      this.views.replaceChildren(...views.map((name) => this.viewButton(name)))
    }
    for (const button of this.views.children) {
      button.setAttribute("aria-pressed", button.dataset.view === view ? "true" : "false")
    }
    this.views.hidden = views.length < 2
    if (this.list) this.list.element.hidden = view !== "list"
    this.canvasBox.hidden = view === "list"
    if (view === "list") this.map.hide()
  }

  viewButton(name) {
    const text = NAMES[name](this.layout.nodes.length)
    return el("button", { type: "button", "data-view": name, onclick: () => this.choose(name) }, text)
  }

  // What is drawn of the whole at 100 %: the middle of all that fits, else what is around the selected step.
  home() {
    const { left, right, top, bottom } = this.arranged
    const [width, height] = [this.box.width / this.scale, this.box.height / this.scale]
    const at = this.cellOf(this.selected) ?? { x: left, y: top }
    return {
      scale: this.scale,
      position: {
        x: within(at.x, left - MARGIN, right + MARGIN, width),
        y: within(at.y, top - MARGIN_Y, bottom + MARGIN_Y, height),
      },
    }
  }

  // Returns the drawn cell that shows a step.
  cellOf(key) {
    return this.places.get(key) ?? [...this.places.values()].find(({ keys }) => keys.includes(key))
  }

  // Returns the part of the drawing that is seen.
  seen() {
    const { x: left, y: top } = this.network.DOMtoCanvas({ x: 0, y: 0 })
    const { x: right, y: bottom } = this.network.DOMtoCanvas({ x: this.box.width, y: this.box.height })
    return { left, top, right, bottom }
  }

  get overflows() {
    if (!this.arranged || !this.network) return false
    const scale = this.network.getScale()
    return this.arranged.width * scale > this.box.width || this.arranged.height * scale > this.box.height
  }

  // Brings the selected step into view, unless the person has moved the view.
  follow() {
    const cell = this.cellOf(this.selected)
    if (!cell || !this.network || this.moved || this.view === "list") return
    const seen = this.seen()
    const { x, y, width, height } = cell
    const inside =
      x - width / 2 >= seen.left &&
      x + width / 2 <= seen.right &&
      y - height / 2 >= seen.top &&
      y + height / 2 <= seen.bottom
    if (!inside) this.fit(!matchMedia(STILL).matches && !document.hidden)
  }

  moveTo(position) {
    this.moved = true
    this.network?.moveTo({ position, scale: this.network.getScale(), animation: false })
  }

  // Moves every card to its place at once, because only a whole layout keeps cards apart. Returns the cards that were
  // elsewhere; they may fade in.
  setNodes() {
    const wanted = this.arranged.cells.map((cell) => ({
      id: cell.id,
      label: cell.id,
      shape: "custom",
      x: cell.x,
      y: cell.y,
      fixed: true,
      physics: false,
      ctxRenderer: (painting) => this.paintNode(painting),
    }))
    const here = new Set(wanted.map(({ id }) => id))
    const gone = this.nodes.getIds().filter((id) => !here.has(id))
    if (gone.length) this.nodes.remove(gone)
    const from = this.places
    this.places = new Map(this.arranged.cells.map((cell) => [cell.id, cell]))
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
    this.network.on("afterDrawing", (ctx) => {
      this.editing?.paint(ctx)
      this.showSeen()
    })
    this.network.on("animationFinished", () => this.map.settle())
    this.network.on("dragEnd", ({ event }) => {
      this.moved ||= event.distance > SLIP_PX
      this.map.settle()
    })
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
      if (this.places.get(pressed.id)?.stack) this.unfold(pressed.id)
      else if (pressed.id !== null) this.onSelect(pressed.id)
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
    const covers = ([, { x, y, width, height }]) => Math.abs(at.x - x) <= width / 2 && Math.abs(at.y - y) <= height / 2
    return [...this.places].findLast(covers)?.[0] ?? null
  }

  // `cursor`: what tells more than that there is a card.
  hover(id, cursor = null) {
    this.canvasBox.style.cursor = cursor ?? (id === null ? "" : "pointer")
    this.canvasBox.title = this.places.get(id)?.stack ? "Click to unfold" : ""
    if (id === this.hovered) return
    this.hovered = id
    this.repaint()
  }

  // The wheel scrolls the page, or first the part of the graph that is out of view; with Ctrl (or a pinch) it zooms.
  wheel(event) {
    if (event.ctrlKey) {
      event.preventDefault()
      this.zoom(event.deltaY < 0 ? 1.08 : 1 / 1.08)
    } else if (this.overflows && this.pan(event.deltaX, event.deltaY)) event.preventDefault()
  }

  // Moves what is seen by pixels, as far as there is more of the graph. Says whether there was.
  pan(dx, dy) {
    const [seen, all] = [this.seen(), this.extent()]
    const scale = this.network.getScale()
    const least = (by, before, after) => (by < 0 ? Math.max(by, Math.min(0, before)) : Math.min(by, Math.max(0, after)))
    const x = least(dx / scale, all.left - seen.left, all.right - seen.right)
    const y = least(dy / scale, all.top - seen.top, all.bottom - seen.bottom)
    if (!x && !y) return false
    const at = this.network.getViewPosition()
    this.moveTo({ x: at.x + x, y: at.y + y })
    return true
  }

  // Text is never smaller than at 100 %.
  zoom(factor) {
    if (!this.network) return
    this.moved = true
    const scale = Math.max(this.scale, Math.min(MOST_ZOOM * this.scale, this.network.getScale() * factor))
    this.network.moveTo({ scale, animation: false })
  }

  // `eased`: the view as a whole glides, so that cards keep their distances.
  fit(eased = false) {
    this.moved = false
    if (!this.network || !this.arranged) return
    const animation = eased === true ? { duration: FADE_MS, easingFunction: "easeOutQuad" } : false
    this.network.moveTo({ ...this.home(), animation })
    this.map.settle()
  }

  // Tells what depends on the part that is seen.
  showSeen() {
    const scale = this.network.getScale() / this.scale
    setText(this.percent, `${Math.round(scale * 100)} %`)
    this.smaller.disabled = scale <= 1.001
    if (this.overflows && this.theme)
      this.map.show(this.arranged, this.seen(), (cell) => this.markOf(cell), this.theme.accent)
    else this.map.hide()
  }

  // Returns the colour of a cell on the small map.
  markOf({ keys }) {
    const step = this.stepAt(keys[0])
    const status = step && !this.model.edited ? BOXED[shownStatus(step)] : undefined
    const chosen = keys.includes(this.selected)
    return chosen ? this.theme.accent : (this.theme.status[status]?.stroke ?? this.theme.line)
  }

  paintNode({ ctx, id }) {
    const cell = this.places.get(id)
    return {
      drawNode: () => {
        if (!cell || !this.theme) return
        ctx.globalAlpha = this.opacity(id)
        if (cell.stack) this.paintStack(ctx, cell)
        else this.paintStep(ctx, cell)
      },
      nodeDimensions: { width: cell?.width ?? 0, height: cell?.height ?? 0 },
    }
  }

  paintStack(ctx, cell) {
    const steps = cell.keys.map((key) => this.stepAt(key)).filter(Boolean)
    if (!steps.length) return
    const { model, theme } = this
    const totals = model.edited ? 0 : steps.reduce((total, step) => total + (step.usage?.output_tokens ?? 0), 0)
    const agentIndex = model.agentIndex(cell.stack.agent)
    const values = model.edited ? [] : cell.keys.flatMap((key) => model.values.get(key) ?? [])
    const marks = { numbers: this.numbersOf(cell), totals, values, agentIndex, hover: cell.id === this.hovered }
    drawStack(ctx, { cell, steps, ...marks, theme })
  }

  paintStep(ctx, { id, x, y, width, height }) {
    const edited = this.model.edited && this.model.editedStep(id)
    const step = edited ?? this.model.step(id)
    if (!step) return
    const painting = { x, y, width, height, step, theme: this.theme, model: this.model }
    const agentIndex = this.model.agentIndex(step.agent)
    const phase = (performance.now() / 500) % (2 * Math.PI)
    const marks = { agentIndex, phase, selected: id === this.selected, hover: id === this.hovered }
    const draw = edited ? drawEditedCard : drawCard
    draw(ctx, { ...painting, ...marks })
  }

  // Returns the bounds of all that is drawn, with its rim.
  extent() {
    const { left, right, top, bottom } = this.arranged
    return { left: left - MARGIN, right: right + MARGIN, top: top - MARGIN_Y, bottom: bottom + MARGIN_Y }
  }

  // Returns how much room the canvas has at the right of a card, in pixels.
  roomRight(key) {
    const { x, y, width } = this.cellOf(key) ?? { x: 0, y: 0, width: 0 }
    const edge = this.network?.canvasToDOM({ x: x + width / 2, y }).x ?? 0
    return this.canvasBox.clientWidth - edge
  }

  paintEdges(ctx) {
    if (!this.theme || !this.arranged) return
    for (const band of this.arranged.bands) {
      const opener = this.places.get(pathKey(band.path))
      const label = roundLabel(band, this.model.rounds.get(pathKey(band.path)))
      drawBand(ctx, { band, label, opener, theme: this.theme })
    }
    const reads = ({ to, change }) => change !== "lost" && to === this.selected
    const near = ({ from, to }) => this.hovered !== null && (from === this.hovered || to === this.hovered)
    const rank = (edge) => 2 * reads(edge) + near(edge)
    // The selected step's inputs are painted last, over the other edges.
    for (const edge of this.arranged.edges.toSorted((a, b) => rank(a) - rank(b))) {
      drawEdge(ctx, { edge, granted: reads(edge), near: near(edge), theme: this.theme })
    }
  }
}

const zoomButton = (label, text, onclick) =>
  el("button", { type: "button", class: "quiet", "aria-label": label, onclick }, text)

// Returns the middle of what is seen along one axis: that of all if it fits, else as near to `at` as there is more.
function within(at, first, last, size) {
  if (last - first <= size) return (first + last) / 2
  return Math.max(first + size / 2, Math.min(last - size / 2, at))
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
