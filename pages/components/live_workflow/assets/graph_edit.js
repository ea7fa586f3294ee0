// Editing in the graph, while the plan's editor is open: a line drawn from a card's handle to a later card gives access,
// a card that is dragged changes places, an edge that is clicked can be cut. Python makes the changes.

import { el, setText } from "./dom.js"
import { drawEdge } from "./draw.js"
import { drawChoice, drawDrop, drawGhost, drawHandle, drawLabel, drawRope } from "./draw_editing.js"
import { distanceTo, onCurve } from "./edge_path.js"
import { plural } from "./format.js"
import { droppedAt, expected, lostByMove, refusal, stepsOf } from "./plan_changes.js"

// What the pointer finds reaches this far around it on the screen.
const REACH_PX = 12
// The pointer may move this far during a click; more is a drag.
const SLIP_PX = 8
// Near the rim of the canvas a drag moves the view.
const RIM_PX = 28
const PAN_PX = 8
const CUTS = new Set(["Delete", "Backspace"])

export class GraphEdit {
  // `onChange` is given a change of the plan, `onSay` a sentence why there is none. `onAccess` opens the menu of a step,
  // `onLeave` is given the step to return to.
  constructor(graph, { onChange, onSay, onAccess, onLeave }) {
    Object.assign(this, { graph, onChange, onSay, onAccess, onLeave })
    this.active = false
    this.steps = []
    this.waiting = []
    this.drag = null
    this.chosen = null // the edge that was clicked: {read, reader}, the keys of its steps
    this.looked = null // the one that the menu is about
    this.hot = null
    this.barText = el("span")
    this.barButton = el("button", { type: "button", onclick: () => this.turn() })
    this.bar = el("div", { class: "edge-bar", role: "group", "aria-label": "Access", hidden: true })
    this.bar.append(this.barText, this.barButton)
    this.bar.addEventListener("keydown", (event) => this.barKey(event))
    this.listen()
  }

  destroy() {
    this.drag = null
    document.removeEventListener("keydown", this.escape, true)
  }

  // The box hears the pointer before vis does, which would move the view.
  listen() {
    const box = this.graph.canvasBox
    box.addEventListener("pointerdown", (event) => this.down(event), { capture: true })
    box.addEventListener("pointermove", (event) => this.moved(event), { capture: true })
    box.addEventListener("pointerup", (event) => this.up(event), { capture: true })
    box.addEventListener("pointercancel", () => this.drop())
    this.escape = (event) => {
      if (event.key !== "Escape" || !this.drag) return
      event.stopPropagation()
      this.drop()
    }
    document.addEventListener("keydown", this.escape, true)
  }

  // `waiting`: the changes that Python has not made yet.
  show(model, { active, waiting }) {
    this.active = active
    this.waiting = waiting
    this.steps = active ? expected(stepsOf(model), waiting) : []
    if (!active) this.drop()
    if (this.chosen && !(active && this.edgeOf(this.chosen))) this.choose(null)
    if (this.chosen) this.sayEdge()
    this.graph.settle()
  }

  stepOf(key) {
    return this.steps.find((step) => step.key === key)
  }

  edgeOf({ read, reader }) {
    return this.graph.arranged?.edges.find(({ from, to }) => from === read && to === reader)
  }

  // The last step has no handle: nothing comes after it.
  handles() {
    return this.steps.slice(0, -1).flatMap((step) => {
      const place = this.graph.places.get(step.key)
      return place ? [{ step, x: place.x + place.width / 2, y: place.y }] : []
    })
  }

  handleAt(point, scale) {
    return this.handles().find(({ x, y }) => Math.hypot(point.x - x, point.y - y) * scale <= REACH_PX)?.step
  }

  stepAt(point) {
    const key = this.graph.cardAtPoint(point)
    return key === null ? undefined : this.stepOf(key)
  }

  edgeAt(point, scale) {
    const { graph } = this
    const near = graph.arranged.edges.flatMap((edge) => {
      const [read, reader] = [this.stepOf(edge.from), this.stepOf(edge.to)]
      return read && reader ? [{ edge, distance: distanceTo(edge.path, point) * scale }] : []
    })
    const nearest = near.toSorted((a, b) => a.distance - b.distance)[0]
    return nearest && nearest.distance <= REACH_PX ? nearest.edge : undefined
  }

  // Returns the cursor over what can be done at this place; null: nothing.
  cursorAt(event) {
    if (!this.active || !this.graph.network) return null
    const point = this.graph.pointOf(event)
    const scale = this.graph.network.getScale()
    const hot = this.handleAt(point, scale)?.key ?? null
    if (hot !== this.hot) this.graph.repaint()
    this.hot = hot
    if (hot !== null) return "crosshair"
    if (this.stepAt(point)) return "grab"
    return this.edgeAt(point, scale) ? "pointer" : null
  }

  down(event) {
    const { graph } = this
    if (!this.active || !graph.network || event.button !== 0 || !event.isPrimary) return
    const point = graph.pointOf(event)
    const from = this.handleAt(point, graph.network.getScale())
    const step = from ?? this.stepAt(point)
    if (!step) return
    event.stopPropagation()
    // A press on a handle is none on the card below it.
    if (from) graph.pressed = null
    graph.canvasBox.setPointerCapture(event.pointerId)
    const place = graph.places.get(step.key)
    const grip = { x: point.x - place.x, y: point.y - place.y }
    this.drag = { kind: from ? "give" : "move", key: step.key, grip, began: false, first: event, last: event }
  }

  moved(event) {
    const { drag } = this
    if (!drag) return
    event.stopPropagation()
    drag.last = event
    if (drag.began) return this.aim()
    if (Math.hypot(event.clientX - drag.first.clientX, event.clientY - drag.first.clientY) <= SLIP_PX) return
    drag.began = true
    this.choose(null)
    this.aim()
    this.pan()
  }

  // Works out what would happen if the pointer let go now.
  aim() {
    const { drag, graph } = this
    const step = this.stepOf(drag.key)
    if (!step) return this.drop()
    drag.at = graph.pointOf(drag.last)
    if (drag.kind === "give") this.aimAtReader(drag, step)
    else this.aimAtPlace(drag, step)
    graph.canvasBox.style.cursor = drag.kind === "move" ? "grabbing" : drag.why ? "not-allowed" : "crosshair"
    graph.repaint()
  }

  aimAtReader(drag, step) {
    const target = this.stepAt(drag.at)
    drag.target = target && target.key !== step.key ? target : null
    drag.why = drag.target ? refusal(step, drag.target) : ""
    drag.lines = !drag.target
      ? [`Who may see step ${step.number}?`]
      : [drag.why ? sentence(drag.why) : `Step ${drag.target.number} sees step ${step.number}`]
  }

  aimAtPlace(drag, step) {
    const { graph } = this
    const ghost = { x: drag.at.x - drag.grip.x, y: drag.at.y - drag.grip.y }
    const { apart } = graph.arranged.size
    const offset = ({ x, y, width, height }) => [(ghost.x - x) / (width + apart[0]), (ghost.y - y) / height]
    const away = (place) => Math.hypot(...offset(place))
    const others = this.steps.filter(({ key }) => key !== step.key && graph.places.has(key))
    const near = others.toSorted((a, b) => away(graph.places.get(a.key)) - away(graph.places.get(b.key)))[0]
    const own = graph.places.get(step.key)
    drag.beside = null
    drag.to = step.number
    drag.ghost = ghost
    if (near && away(own) > 0.35 && away(graph.places.get(near.key)) < 1.5) {
      const [dx, dy] = offset(graph.places.get(near.key))
      const side = Math.abs(dx) >= Math.abs(dy) ? (dx < 0 ? "left" : "right") : dy < 0 ? "top" : "bottom"
      drag.beside = { key: near.key, side }
      drag.to = droppedAt(step.number, near.number, side === "right" || side === "bottom")
    }
    const lost = drag.to === step.number ? 0 : lostByMove(this.steps, step.number, drag.to)
    drag.lines = [
      drag.to === step.number ? `Stays step ${step.number}` : `Becomes step ${drag.to}`,
      ...(lost ? [`${plural(lost, "access", "accesses")} will be cut`] : []),
    ]
  }

  // While the pointer is held near the rim, the view follows it as far as there is more of the graph.
  pan() {
    const { drag, graph } = this
    if (!drag?.began || !graph.network) return
    const box = graph.canvasBox.getBoundingClientRect()
    const { clientX: x, clientY: y } = drag.last
    const [seen, all] = [graph.seen(), graph.extent()]
    const toFirst = (at, edge, first, least) => at < edge + RIM_PX && first > least
    const toLast = (at, edge, last, most) => at > edge - RIM_PX && last < most
    const by = (first, last) => (first ? -PAN_PX : last ? PAN_PX : 0)
    const dx = by(toFirst(x, box.left, seen.left, all.left), toLast(x, box.right, seen.right, all.right))
    const dy = by(toFirst(y, box.top, seen.top, all.top), toLast(y, box.bottom, seen.bottom, all.bottom))
    if (dx || dy) {
      const scale = graph.network.getScale()
      const at = graph.network.getViewPosition()
      graph.moved = true
      graph.network.moveTo({ position: { x: at.x + dx / scale, y: at.y + dy / scale }, scale, animation: false })
      this.aim()
    }
    requestAnimationFrame(() => this.pan())
  }

  up(event) {
    const { drag } = this
    if (!drag) return
    event.stopPropagation()
    this.drop()
    const step = this.stepOf(drag.key)
    if (!step) return
    if (!drag.began) {
      if (drag.kind === "give") this.onAccess(step.key)
    } else if (drag.kind === "give" && drag.target && !drag.why) {
      this.onChange({ kind: "give", step: Number(drag.target.key), read: Number(step.key) })
    } else if (drag.kind === "give" && drag.why) {
      this.onSay(`${sentence(drag.why)}.`)
    } else if (drag.kind === "move" && drag.to !== step.number) {
      this.onChange({ kind: "move", step: Number(step.key), to: drag.to })
    }
  }

  drop() {
    if (!this.drag) return
    this.drag = null
    this.graph.canvasBox.style.cursor = ""
    this.graph.repaint()
  }

  // A click beside the cards chooses the edge there, or none.
  clicked(event) {
    if (!this.active || !this.graph.network) return
    const edge = this.edgeAt(this.graph.pointOf(event), this.graph.network.getScale())
    this.choose(edge ? { read: edge.from, reader: edge.to } : null)
    if (edge) this.barButton.focus()
  }

  choose(edge) {
    this.chosen = edge
    this.bar.hidden = edge === null
    if (edge) this.sayEdge()
    this.graph.repaint()
  }

  // Paints one more edge while the menu is about it; null: none.
  look(edge) {
    this.looked = edge
    this.graph.repaint()
  }

  get chosenSteps() {
    return [this.stepOf(this.chosen.read), this.stepOf(this.chosen.reader)]
  }

  sayEdge() {
    const [read, reader] = this.chosenSteps
    if (!read || !reader) return this.choose(null)
    const sees = reader.reads.includes(read.number)
    setText(this.barText, `Step ${reader.number} ${sees ? "sees" : "saw"} step ${read.number}`)
    setText(this.barButton, sees ? "Cut" : "Give again")
    this.barButton.title = sees ? "Delete" : ""
    this.barButton.setAttribute("aria-label", `${this.barButton.textContent}: ${this.barText.textContent}`)
  }

  // Cuts the chosen access, or gives it again.
  turn() {
    if (!this.chosen) return
    const [read, reader] = this.chosenSteps
    const kind = reader.reads.includes(read.number) ? "cut" : "give"
    const why = kind === "give" ? refusal(read, reader) : ""
    if (why) this.onSay(`${sentence(why)}.`)
    else this.onChange({ kind, step: Number(reader.key), read: Number(read.key) })
    this.leaveBar()
  }

  leaveBar() {
    const { reader } = this.chosen
    this.choose(null)
    this.onLeave(reader)
  }

  barKey(event) {
    if (CUTS.has(event.key)) this.turn()
    else if (event.key === "Escape") this.leaveBar()
    else return
    event.preventDefault()
    event.stopPropagation()
  }

  paint(ctx) {
    const { graph, drag } = this
    const { theme } = graph
    if (!this.active || !theme || !graph.arranged) return
    const marks = { theme }
    for (const edge of [this.chosen, this.looked]) if (edge) this.paintEdge(ctx, edge, marks)
    for (const { kind, step, read } of this.waiting) {
      const edge = { read: String(read), reader: String(step) }
      if (kind === "give" && !this.edgeOf(edge)) this.paintEdge(ctx, edge, marks)
    }
    if (drag?.began && drag.kind === "give") {
      for (const step of this.steps) {
        const own = step.key === drag.key
        const place = graph.places.get(step.key)
        const choice = { ...place, allowed: !refusal(this.stepOf(drag.key), step), aimed: step === drag.target }
        if (place && !own) drawChoice(ctx, { ...choice, ...marks })
      }
    }
    for (const { step, x, y } of this.handles()) {
      drawHandle(ctx, { x, y, hot: step.key === (drag?.kind === "give" ? drag.key : this.hot), ...marks })
    }
    if (drag?.began) this.paintDrag(ctx, marks)
    this.placeBar()
  }

  // Paints an edge in the colour of what is selected; one that is not in the plan as a broken line.
  paintEdge(ctx, { read, reader }, { theme }) {
    const edge = this.edgeOf({ read, reader })
    const [from, to] = [this.graph.places.get(read), this.graph.places.get(reader)]
    if (!from || !to) return
    if (edge) drawEdge(ctx, { edge, granted: true, theme })
    else drawRope(ctx, { from: rightOf(from), to: leftOf(to), theme })
  }

  paintDrag(ctx, marks) {
    const { drag, graph } = this
    const { at, target, lines, why, beside, ghost } = drag
    const own = graph.places.get(drag.key)
    if (drag.kind === "give" && own) {
      const goal = target && !why && graph.places.get(target.key)
      drawRope(ctx, { from: rightOf(own), to: goal ? leftOf(goal) : at, ...marks })
    } else if (ghost && own) {
      drawGhost(ctx, { ...own, ...ghost, ...marks })
      if (beside && graph.places.has(beside.key)) {
        drawDrop(ctx, { ...graph.places.get(beside.key), side: beside.side, ...marks })
      }
    }
    drawLabel(ctx, { ...at, lines, bad: Boolean(why), bounds: graph.seen(), ...marks })
  }

  // Keeps what one can do with the chosen edge beside its middle.
  placeBar() {
    const path = this.chosen && this.edgeOf(this.chosen)?.path
    if (!path) return
    const { x, y } = this.graph.network.canvasToDOM(onCurve(path.bend, path.tip, 0.5))
    const { clientWidth, clientHeight } = this.graph.canvasBox
    const left = Math.max(4, Math.min(x - this.bar.offsetWidth / 2, clientWidth - this.bar.offsetWidth - 4))
    const top = Math.max(4, Math.min(y + 12, clientHeight - this.bar.offsetHeight - 4))
    this.bar.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`
  }
}

const rightOf = ({ x, y, width }) => ({ x: x + width / 2, y })
const leftOf = ({ x, y, width }) => ({ x: x - width / 2, y })
const sentence = (words) => words[0].toUpperCase() + words.slice(1)
