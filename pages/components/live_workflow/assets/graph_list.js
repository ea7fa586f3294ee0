// The graph as a list: a row for each step, by layer, with the newest line of its output. A layer of several steps has a
// row of its own, which opens and closes it. Up and down move, Enter opens, left and right close and open a layer.

import { el, setAttributes, setClass, setText } from "./dom.js"
import { CHANGE, FATE } from "./draw_edited.js"
import { ranges } from "./fold.js"
import { agentColour, count, pathKey, seconds } from "./format.js"
import { STEP_STATUS, calledTools, callsNow, ended, openCalls, shownStatus } from "./status.js"
import { isolated, visible } from "./text.js"

const HEADS = ["Step", "Instruction", "Reads", "State", "Tokens", "Output, or its newest line"]
// Up to so many steps are all shown at first.
const FEW = 16
const LINE = 240

export class GraphList {
  constructor({ onSelect, onOpen }) {
    Object.assign(this, { onSelect, onOpen })
    this.onKey = null // while the plan is edited: takes a key on a step
    this.rows = new Map()
    this.opened = new Map() // what a person opened or closed, by the layer's name
    this.shown = new Set() // the layers that are open
    this.body = el("tbody")
    const head = el(
      "tr",
      {},
      HEADS.map((name) => el("th", { scope: "col", class: name === "Tokens" ? "number" : null }, name)),
    )
    this.table = el("table", { role: "grid", "aria-label": "Steps by layer" }, el("thead", {}, head), this.body)
    this.element = el("div", { class: "graph-list", hidden: true }, this.table)
    this.body.addEventListener("keydown", (event) => this.key(event))
  }

  show(model, selected) {
    this.model = model
    const chosen = model.edited ? model.editedStep(selected) : model.step(selected)
    const above = selected === null ? [] : selected.split(".").slice(0, -1)
    const read = new Set((chosen?.reads ?? []).map((number) => [...above, number].join(".")))
    const layers = layersOf(model)
    this.shown = new Set(layers.filter((layer) => this.isOpen(layer, selected)).map(({ id }) => id))
    const ids = layers.flatMap((layer) => [
      ...(layer.steps.length > 1 ? [layer.id] : []),
      ...(layer.steps.length === 1 || this.shown.has(layer.id) ? layer.steps.map(({ key }) => key) : []),
    ])
    for (const [id, row] of this.rows) {
      if (ids.includes(id)) continue
      row.remove()
      this.rows.delete(id)
    }
    for (const layer of layers) {
      if (layer.steps.length > 1) this.layerRow(layer)
      for (const step of layer.steps) if (ids.includes(step.key)) this.stepRow(model, step, selected, read)
    }
    ids.forEach((id, at) => {
      const row = this.rows.get(id)
      if (this.body.children[at] !== row) this.body.insertBefore(row, this.body.children[at] ?? null)
      // One stop for the Tab key: the selected step, else the first row.
      const stop = ids.includes(selected) ? id === selected : at === 0
      if (this.body.getRootNode().activeElement !== row) row.tabIndex = stop ? 0 : -1
    })
    if (selected !== this.selected) this.bring(this.rows.get(selected))
    this.selected = selected
  }

  // Moves the list and nothing else of the page. Its head covers what is at its top.
  bring(row) {
    if (!row || this.element.hidden) return
    const [list, place] = [this.element.getBoundingClientRect(), row.getBoundingClientRect()]
    const head = this.table.tHead.offsetHeight
    this.element.scrollTop += Math.min(0, place.top - list.top - head) + Math.max(0, place.bottom - list.bottom)
  }

  // Open is what a person opened, and else where something happens.
  isOpen(layer, selected) {
    const chosen = this.opened.get(layer.id)
    if (chosen !== undefined) return chosen
    // Nothing closes below a pointer, or around the focus.
    if (
      this.shown.has(layer.id) &&
      (this.table.matches(":hover") || this.table.contains(this.body.getRootNode().activeElement))
    )
      return true
    if (layer.few || layer.steps.some(({ key }) => key === selected)) return true
    return (
      new Set(layer.steps.map(({ status }) => (ended(status) ? "ended" : status))).size > 1 ||
      layer.steps.some(({ live }) => live)
    )
  }

  row(id, make) {
    if (!this.rows.has(id)) this.rows.set(id, make())
    return this.rows.get(id)
  }

  layerRow(layer) {
    const row = this.row(layer.id, () => {
      const made = el("tr", { class: "layer", "data-layer": layer.id }, el("td", { colspan: String(HEADS.length) }))
      made.firstChild.append(
        el("span", { class: "turn", "aria-hidden": "true" }),
        el("b"),
        el("span", { class: "muted" }),
        el("span", { class: "states" }),
      )
      made.addEventListener("click", () => this.turn(layer.id))
      return made
    })
    const open = this.shown.has(layer.id)
    const [turn, name, what, states] = row.firstChild.children
    setText(turn, open ? "▾" : "▸")
    setText(name, layer.name)
    setText(what, layer.what)
    const chips = layer.states.map(
      ({ status, number }) => `${STEP_STATUS[status].glyph} ${number} ${STEP_STATUS[status].word}`,
    )
    if (states.dataset.said !== chips.join()) {
      states.dataset.said = chips.join()
      states.replaceChildren(
        ...layer.states.map(({ status }, at) => el("span", { class: `chip ${status}` }, chips[at])),
      )
    }
    setAttributes(row, { "aria-expanded": open ? "true" : "false", "aria-label": `${layer.name}, ${chips.join(", ")}` })
  }

  // `read`: the names of the steps that the selected one may read.
  stepRow(model, step, selected, read) {
    const row = this.row(step.key, () => {
      const made = el("tr", { class: "step", "data-step": step.key })
      const name = el("td", { class: "who" }, el("span", { class: "dot", "aria-hidden": "true" }), el("b"))
      made.append(
        name,
        el("td", { dir: "auto" }),
        el("td", { class: "number" }),
        el("td", {}, el("span")),
        el("td", { class: "number" }),
        el("td", { dir: "auto" }),
      )
      made.addEventListener("click", () => {
        this.onSelect(step.key)
        made.focus({ preventScroll: true })
      })
      made.addEventListener("focus", () => this.onSelect(step.key))
      return made
    })
    const [who, told, reads, state, tokens, line] = row.children
    const [dot, name] = who.children
    const index = model.agentIndex(step.agent)
    dot.style.setProperty("--agent", agentColour(index))
    setText(name, step.title)
    setText(told, step.told)
    setText(reads, step.reads)
    setClass(state.firstChild, `chip ${step.status}`)
    setText(state.firstChild, step.state)
    setText(tokens, step.tokens)
    setText(line, step.line)
    const said = `Step ${step.title}, ${step.word}, ${step.reads ? `reads ${step.reads}` : "reads nothing"}`
    setClass(row, read.has(step.number) ? "step read" : "step")
    setAttributes(row, { "aria-label": said, "aria-selected": step.key === selected ? "true" : "false" })
  }

  turn(id) {
    const row = this.rows.get(id)
    this.opened.set(id, row.getAttribute("aria-expanded") !== "true")
    this.show(this.model, this.selected)
    row.focus({ preventScroll: true })
  }

  key(event) {
    const row = event.target.closest("tr")
    if (!row || event.ctrlKey || event.metaKey) return
    const { step, layer } = row.dataset
    if (step !== undefined && this.onKey?.(event, step)) return event.preventDefault()
    if (event.altKey) return
    const rows = [...this.body.children]
    const at = rows.indexOf(row)
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key]
    if (to !== undefined) rows[Math.max(0, Math.min(rows.length - 1, to))].focus()
    else if (event.key === "Enter" && step !== undefined) this.onOpen(step)
    else if (layer !== undefined && turns(event.key, row)) this.turn(layer)
    else return
    event.preventDefault()
  }
}

function turns(key, row) {
  const open = row.getAttribute("aria-expanded") === "true"
  return key === "Enter" || key === " " || (key === "ArrowRight" && !open) || (key === "ArrowLeft" && open)
}

// Returns the layers of the plan in order, an inner round after all of the first: {id, name, what, few, states, steps}.
function layersOf(model) {
  const layout = model.edited?.layout ?? model.layout
  const layers = new Map()
  for (const node of layout?.nodes ?? []) {
    const step = model.edited ? model.editedStep(node.id) : model.step(node.id)
    if (!step) continue
    const round = node.path.slice(0, -1)
    const id = `${pathKey(round)}/${node.layer}`
    if (!layers.has(id)) layers.set(id, { id, round, layer: node.layer, steps: [] })
    layers.get(id).steps.push(model.edited ? editedRow(node.id, step) : runRow(model, node.id, step))
  }
  const few = (layout?.nodes.length ?? 0) <= FEW
  return [...layers.values()]
    .toSorted((a, b) => a.round.length - b.round.length || compare(a.round, b.round) || a.layer - b.layer)
    .map((layer) => {
      const numbers = new Map()
      for (const { status } of layer.steps) numbers.set(status, (numbers.get(status) ?? 0) + 1)
      const states = [...numbers]
        .filter(([status]) => STEP_STATUS[status])
        .map(([status, number]) => ({ status, number }))
      const round = layer.round.length ? ` of the round of step ${pathKey(layer.round)}` : ""
      const name = `Layer ${layer.layer + 1}${round} · ${layer.steps.length} steps`
      const agents = [...new Set(layer.steps.map(({ agent }) => isolated(agent)))].slice(0, 3).join(", ")
      return { ...layer, name, what: `${ranges(layer.steps.map(({ number }) => number))} · ${agents}`, few, states }
    })
}

const compare = (a, b) => pathKey(a).localeCompare(pathKey(b), "en", { numeric: true })
const short = (text) => visible(text.slice(0, LINE)).replace(/\s+/g, " ").trim()

function runRow(model, key, step) {
  const status = shownStatus(step)
  const { glyph, word } = STEP_STATUS[status]
  const live = !ended(status) && !["waiting", "slot", "draft", "skipped", "unfinished"].includes(status)
  const ms = model.stepMs(step)
  const shown = model.stepTokens(step)
  return {
    key,
    number: key,
    agent: step.agent,
    status,
    word,
    live,
    title: `${key} · ${isolated(step.agent)}`,
    told: short(step.instruction),
    reads: (step.reads ?? []).join(", "),
    state: ms === null ? `${glyph} ${status === "slot" ? "waiting" : word}` : `${glyph} ${seconds(ms)}`,
    tokens: shown ? count(shown) : "",
    line: step.error ? short(step.error) : lineOf(step),
  }
}

// The first line of an output, or the newest one of what is being written.
function lineOf(step) {
  const { status, output, reasoning } = step
  if (callsNow(step).length) return `⚒ ${calledTools(callsNow(step), true)}`
  if (openCalls(step).length) return `⚒ ${calledTools(openCalls(step))}`
  if (status !== "running") return short((output ?? "").trimStart().slice(0, LINE).split("\n")[0])
  const lines = (output || reasoning || "")
    .slice(-LINE)
    .split("\n")
    .filter((line) => line.trim())
  return short(lines.at(-1) ?? "")
}

function editedRow(key, step) {
  const { number, was, agent, instruction, reads, change, fate, status, words } = step
  const mark = change ? CHANGE[change] : FATE[fate]
  return {
    key,
    number: String(number ?? was),
    agent,
    status: status ?? "",
    live: Boolean(change),
    word: mark?.word ?? "as it was",
    title: `${number ?? was} · ${isolated(agent)}`,
    told: short(instruction),
    reads: reads.join(", "),
    state: mark ? `${mark.glyph} ${mark.word}` : "",
    tokens: "",
    line: short(words ?? ""),
  }
}
