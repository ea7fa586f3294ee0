// How a graph is shown: with whole cards, compact ones, rows that wrap, stacks of parallel steps, or as a list. Pure.

import { COMPACT, FOLDED, FULL, STACK, arrange } from "./arrange.js"

// Every step at full size: as much of the graph as can be is in view.
const ALL_WIDTH = 150
const ALL = { width: Infinity, height: Infinity }

const roundOf = (path) => path.slice(0, -1)
export const groupOf = ({ path, layer }, agent) => `${roundOf(path).join(".")}/${layer}/${agent}`

// Returns the graph with a cell a step. `layout` is the server's: {nodes: [{id, path, layer, y}], edges, bands}.
export function plain({ nodes, edges, bands }, height) {
  const cells = nodes.map((node) => ({
    id: node.id,
    keys: [node.id],
    stack: null,
    round: roundOf(node.path),
    layer: node.layer,
    order: node.y,
    height,
  }))
  return { cells, links: edges.map((edge) => ({ ...edge, edges: [edge] })), bands }
}

// Returns the graph in which steps of one layer and agent are one cell, if `kindOf(key)` says the same of them: {agent,
// kind}; null: never folded. `open` has the groups that a person unfolded.
export function folded(layout, kindOf, open = new Set()) {
  const graph = plain(layout, FOLDED.height)
  const openers = new Set(layout.bands.map(({ path }) => path.join(".")))
  const groups = new Map()
  layout.nodes.forEach((node, place) => {
    const told = openers.has(node.path.join(".")) ? null : kindOf(node.id)
    const group = told && groupOf(node, told.agent)
    if (!told || open.has(group)) return
    const id = `${group}/${told.kind}`
    if (!groups.has(id)) groups.set(id, { ...told, group, id, cells: [] })
    groups.get(id).cells.push(graph.cells[place])
  })
  const within = new Map()
  for (const { id, group, agent, kind, cells } of groups.values()) {
    if (cells.length < 2) continue
    const order = cells.reduce((total, cell) => total + cell.order, 0) / cells.length
    const keys = cells.map((cell) => cell.id)
    const height = kind === "wait" ? STACK.waiting : STACK.height
    const stack = { ...cells[0], id, keys, order, height, stack: { group, agent, kind } }
    for (const each of keys) within.set(each, stack)
  }
  const cells = [...new Set(graph.cells.map((cell) => within.get(cell.id) ?? cell))]
  return { cells, links: merged(layout.edges, within), bands: layout.bands }
}

// Edges between the same two cells are one link.
function merged(edges, within) {
  const links = new Map()
  for (const edge of edges) {
    const [from, to] = [edge.from, edge.to].map((id) => within.get(id)?.id ?? id)
    const id = JSON.stringify([from, to])
    if (!links.has(id)) links.set(id, { ...edge, id, from, to, edges: [] })
    links.get(id).edges.push(edge)
    links.get(id).change ||= edge.change
  }
  return [...links.values()]
}

// Chooses how a graph is shown in `room`. `wanted`: the view that a person chose; null: none. `agentOf(key)`: a step's
// agent. `lists`: whether there is a list. Returns {view, views, arranged}: the view, those that can be chosen, and where all lies; null for a list.
// Whether a folded graph fits is judged as if all of it were folded, so that the view stays while a run goes on.
export function choose(layout, room, { wanted = null, kindOf, agentOf, open, editing = false, lists = true }) {
  const list = lists ? ["list"] : []
  const fitting = fittingOf(layout, room)
  if (fitting) {
    const views = ["graph", ...list]
    const view = lists && wanted === "list" ? "list" : "graph"
    return { view, views, arranged: view === "list" ? null : fitting }
  }
  const smallest = folded(layout, (key) => ({ agent: agentOf(key), kind: "done" }))
  const folds = smallest.cells.length < layout.nodes.length
  const straight = folds && arrange(smallest, FOLDED, room).fits
  const wraps = folds && !straight && canWrap(layout) && arrange(smallest, FOLDED, room, { wraps: true }).fits
  const views = [...(folds ? ["folded"] : []), "all", ...list]
  const usual = editing ? "all" : straight || wraps ? "folded" : (list[0] ?? "all")
  // Only single steps can be edited.
  const view = views.includes(wanted) && !(editing && wanted === "folded") ? wanted : usual
  const arranged = {
    folded: () => arrange(folded(layout, kindOf, open), FOLDED, room, { wraps }),
    all: () => arrange(plain(layout, COMPACT.height), { ...COMPACT, widest: ALL_WIDTH }, ALL),
    list: () => null,
  }[view]()
  return { view, views, arranged }
}

const canWrap = ({ bands }) => bands.length === 0

function fittingOf(layout, room) {
  const ways = [
    [FULL, false],
    [COMPACT, false],
    [FULL, true],
    [COMPACT, true],
  ]
  for (const [size, wraps] of ways) {
    if (wraps && !canWrap(layout)) continue
    const arranged = arrange(plain(layout, size.height), size, room, { wraps })
    if (arranged.fits) return arranged
  }
  return null
}

// What is folded looks alike: done, waiting, or skipped. Whatever runs, failed, or asks for a person is a card.
const KINDS = {
  completed: "done",
  reused: "done",
  written: "done",
  waiting: "wait",
  slot: "wait",
  draft: "wait",
  unfinished: "wait",
  skipped: "skipped",
}
export const foldKind = (status) => KINDS[status] ?? null

// Names steps by their numbers: "0–4, 7".
export function ranges(keys) {
  const parts = []
  for (const each of keys) {
    const cut = each.lastIndexOf(".") + 1
    const [prefix, number] = [each.slice(0, cut), Number(each.slice(cut))]
    const last = parts.at(-1)
    if (last && last.prefix === prefix && last.to === number - 1) last.to = number
    else parts.push({ prefix, from: number, to: number })
  }
  return parts.map(({ prefix, from, to }) => `${prefix}${from}${to > from ? `–${to}` : ""}`).join(", ")
}

// So many outputs are each shown by themselves; numbers longer than this are given as how many they are.
const FEW_PARTS = 4
const LONGEST_RANGES = 8

// Groups a long list of outputs by agent: {agent, parts, which}; null: it is short, or each is of another agent.
export function byAgent(parts) {
  const groups = Map.groupBy(parts, ({ agent }) => agent)
  if (parts.length <= FEW_PARTS || groups.size === parts.length) return null
  return [...groups].map(([agent, of]) => {
    const numbers = ranges(of.map(({ path }) => path.join(".")))
    return { agent, parts: of, which: numbers.length <= LONGEST_RANGES ? `${numbers} ·` : `${of.length} ×` }
  })
}
