import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { COMPACT, FULL, arrange } = await live("arrange.js")
const { byAgent, choose, foldKind, folded, plain, ranges } = await live("fold.js")
const { emptiestCorner } = await live("graph_map.js")

// What a window of 1280 x 720 leaves for the graph.
const ROOM = { width: 730, height: 295 }

// The server's layout of a plan: `reads[i]` are the steps that step i reads.
function layoutOf(reads) {
  const layer = []
  for (const [index, seen] of reads.entries()) layer[index] = Math.max(-1, ...seen.map((each) => layer[each])) + 1
  const nodes = reads.map((_, index) => ({ id: String(index), path: [index], layer: layer[index], y: index }))
  const edges = reads.flatMap((seen, to) =>
    seen.map((from) => ({ id: `${from}-${to}`, from: String(from), to: String(to) })),
  )
  return { nodes, edges, bands: [] }
}

const range = (from, to) => Array.from({ length: to - from }, (_, at) => from + at)
const chain = (length) => layoutOf(range(0, length).map((index) => (index ? [index - 1] : [])))
// Three parallel steps of each of `n` suppliers, three checks of all of them, and an answer.
const suppliers = (n) =>
  layoutOf([
    ...range(0, n).map(() => []),
    ...range(0, n).map((index) => [index]),
    ...range(0, n).map((index) => [n + index]),
    ...range(0, 3).map(() => range(2 * n, 3 * n)),
    range(3 * n, 3 * n + 3),
  ])
const agentOf = (n) => (key) =>
  ["scientist", "calculator", "reasoner"][Math.floor(key / n)] ?? (key < 3 * n + 3 ? "verifier" : "writer")

function shown(layout, told = {}) {
  const agents = told.agentOf ?? (() => "solver")
  const kindOf = told.kindOf ?? ((key) => ({ agent: agents(key), kind: "done" }))
  return choose(layout, told.room ?? ROOM, { open: new Set(), ...told, agentOf: agents, kindOf })
}

function assertApart({ cells }) {
  for (const one of cells) {
    for (const other of cells) {
      if (one.id >= other.id) continue
      const beside = Math.abs(one.x - other.x) >= (one.width + other.width) / 2
      const below = Math.abs(one.y - other.y) >= (one.height + other.height) / 2
      assert.ok(beside || below, `${one.id} covers ${other.id}`)
    }
  }
}

test("four steps have whole cards, sixteen compact ones, and no card gets smaller than that", () => {
  const four = shown(chain(4))
  assert.equal(four.view, "graph")
  assert.equal(four.arranged.size, FULL)
  const sixteen = shown(suppliers(4), { agentOf: agentOf(4) })
  assert.deepEqual([sixteen.view, sixteen.views], ["graph", ["graph", "list"]])
  assert.equal(sixteen.arranged.size, COMPACT)
  for (const { width, height } of sixteen.arranged.cells) assert.ok(width >= COMPACT.width && height === COMPACT.height)
  assertApart(sixteen.arranged)
})

test("a chain wraps like text, and each line back runs between the rows", () => {
  const { view, arranged } = shown(chain(14))
  assert.equal(view, "graph")
  assert.ok(arranged.width <= ROOM.width && arranged.height <= ROOM.height)
  assertApart(arranged)
  const rows = Map.groupBy(arranged.cells, ({ row }) => row)
  assert.deepEqual(
    [...rows.values()].map((row) => row.length),
    [5, 5, 4],
  )
  assert.ok(rows.size > 1)
  for (const { from, to, path } of arranged.edges.filter((edge) => edge.path.course)) {
    const [source, target] = [from, to].map((id) => arranged.cells.find((cell) => cell.id === id))
    assert.equal(target.row, source.row + 1)
    const between = path.course
      .map(({ y }) => y)
      .filter((y) => y > source.y + source.height / 2 && y < target.y - target.height / 2)
    assert.ok(between.length >= 2, "the line turns twice in the gap")
  }
})

test("forty steps fold: one stack a layer and agent, and every edge of its steps still has a line", () => {
  const layout = suppliers(12)
  const { view, views, arranged } = shown(layout, { agentOf: agentOf(12) })
  assert.deepEqual([view, views], ["folded", ["folded", "all", "list"]])
  assert.ok(arranged.fits)
  assert.deepEqual(
    arranged.cells.map(({ keys }) => ranges(keys)),
    ["0–11", "12–23", "24–35", "36–38", "39"],
  )
  const drawn = arranged.edges.flatMap(({ edges }) => edges.map(({ id }) => id))
  assert.deepEqual(drawn.toSorted(), layout.edges.map(({ id }) => id).toSorted())
})

test("what runs, failed or is selected is never folded, and what is left of its layer is", () => {
  const status = (key) =>
    ({ 26: "running", 27: "failed", 28: "retrying", 29: "refused" })[key] ?? (key > 29 ? "waiting" : "completed")
  const kindOf = (key) => {
    const kind = key === "3" ? null : foldKind(status(Number(key)))
    return kind && { agent: agentOf(12)(key), kind }
  }
  const { view, arranged } = shown(suppliers(12), { agentOf: agentOf(12), kindOf })
  assert.equal(view, "folded")
  assert.deepEqual(
    arranged.cells.map(({ keys, stack }) => `${ranges(keys)}${stack ? ` ${stack.kind}` : ""}`).toSorted(),
    [
      "0–2, 4–11 done",
      "12–23 done",
      "24–25 done",
      "26",
      "27",
      "28",
      "29",
      "3",
      "30–35 wait",
      "36–38 wait",
      "39",
    ].toSorted(),
  )
  assertApart(arranged)
})

test("a stack that a person opened stays open, whatever else is folded", () => {
  const layout = suppliers(12)
  const kindOf = (key) => ({ agent: agentOf(12)(key), kind: "done" })
  const { group } = folded(layout, kindOf).cells[0].stack
  const { cells } = folded(layout, kindOf, new Set([group]))
  assert.equal(cells.filter(({ stack }) => !stack).length, 12 + 1)
})

test("a person can have every step at full size, or the list; while one edits, steps are single", () => {
  const layout = suppliers(12)
  const all = shown(layout, { agentOf: agentOf(12), wanted: "all" })
  assert.equal(all.arranged.cells.length, 40)
  assert.ok(all.arranged.height > ROOM.height)
  assertApart(all.arranged)
  assert.equal(shown(layout, { agentOf: agentOf(12), wanted: "list" }).arranged, null)
  assert.equal(shown(layout, { agentOf: agentOf(12), wanted: "folded", editing: true }).view, "all")
})

test("a graph that does not fit even when it is folded is a list, or all of it where there is no list", () => {
  const layout = chain(60)
  assert.deepEqual(shown(layout).view, "list")
  assert.deepEqual(shown(layout).views, ["all", "list"])
  assert.equal(shown(layout, { lists: false }).view, "all")
})

test("the view does not change because steps begin and end", () => {
  const views = ["done", "wait", null].map((kind) => {
    const kindOf = (key) => kind && { agent: agentOf(12)(key), kind }
    return shown(suppliers(12), { agentOf: agentOf(12), kindOf }).view
  })
  assert.deepEqual(views, ["folded", "folded", "folded"])
})

test("edges that skip layers have lanes of their own, away from the cards they pass", () => {
  const { arranged } = shown(layoutOf([[], [0], [1], [0, 2], [0, 1, 3]]), { room: { width: 1200, height: 600 } })
  const lanes = arranged.edges.filter(({ path }) => path.enter)
  assert.deepEqual(lanes.map(({ id }) => id).toSorted(), ["0-3", "0-4", "1-4"])
  const heights = new Map(lanes.map(({ from, path }) => [from, path.bend.y]))
  assert.equal(new Set(heights.values()).size, 2)
  for (const y of heights.values()) assert.ok(Math.abs(y) > FULL.height / 2)
})

// Numbers that are the same in each run of the test.
function drawing(seed) {
  let state = seed
  return () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648
}

test("whatever the plan, no card covers another and no level line runs through one", () => {
  for (let seed = 1; seed <= 60; seed += 1) {
    const draw = drawing(seed)
    const reads = range(0, 3 + Math.floor(draw() * 20)).map((index) =>
      range(0, index).filter(() => draw() < 2 / (index + 1)),
    )
    const ways = [
      [FULL, false],
      [COMPACT, false],
      [COMPACT, true],
    ]
    for (const [size, wraps] of ways) {
      const arranged = arrange(plain(layoutOf(reads), size.height), size, ROOM, { wraps })
      assertApart(arranged)
      for (const { id, path } of arranged.edges) {
        const corners = path.course ?? (path.enter ? [path.enter, path.bend] : [])
        for (const [at, to] of corners.slice(1).entries()) {
          const from = corners[at]
          if (from.y !== to.y) continue
          const [left, right] = [Math.min(from.x, to.x), Math.max(from.x, to.x)]
          const through = arranged.cells.filter(
            (cell) =>
              Math.abs(cell.y - to.y) < cell.height / 2 &&
              cell.x + cell.width / 2 > left + 1 &&
              cell.x - cell.width / 2 < right - 1,
          )
          assert.deepEqual(through, [], `${id} of plan ${seed}`)
        }
      }
    }
  }
})

test("an inner round hangs below in its band, and its opener is never folded", () => {
  const outer = layoutOf([[], [], [0, 1]])
  const inner = [
    { id: "1.0", path: [1, 0], layer: 0, y: 0 },
    { id: "1.1", path: [1, 1], layer: 0, y: 1 },
  ]
  const layout = { nodes: [...outer.nodes, ...inner], edges: outer.edges, bands: [{ path: [1] }] }
  const { cells } = folded(layout, () => ({ agent: "solver", kind: "done" }))
  assert.deepEqual(
    cells.map(({ keys }) => ranges(keys)),
    ["0", "1", "2", "1.0–1"],
  )
  const arranged = arrange(plain(layout, COMPACT.height), COMPACT, ROOM)
  assertApart(arranged)
  const [band] = arranged.bands
  for (const { id, y, height } of arranged.cells) {
    assert.equal(id.startsWith("1."), y - height / 2 >= band.top && y + height / 2 <= band.bottom)
  }
})

test("steps are named by ranges", () => {
  assert.equal(ranges(["0", "1", "2", "4", "6", "7"]), "0–2, 4, 6–7")
  assert.equal(ranges(["2.0", "2.1", "3.0"]), "2.0–1, 3.0")
})

test("the small map lies where the fewest cards are", () => {
  const cells = [
    { x: 20, y: 20, width: 40, height: 40 },
    { x: 180, y: 20, width: 40, height: 40 },
    { x: 20, y: 180, width: 40, height: 40 },
  ]
  const seen = { left: 0, right: 200, top: 0, bottom: 200 }
  assert.equal(emptiestCorner({ cells }, seen, { width: 50, height: 50 }), "bottom right")
})

test("a long list of withheld outputs is a line per agent, a short one is not", () => {
  const parts = range(0, 12).map((index) => ({ path: [index], agent: index % 2 ? "scientist" : "calculator" }))
  const named = (list) => byAgent(list).map(({ agent, which }) => `${which} ${agent}`)
  assert.deepEqual(named(parts), ["6 × calculator", "6 × scientist"])
  assert.deepEqual(named(parts.map((part, at) => ({ ...part, agent: at < 4 ? "planner" : "coder" }))), [
    "0–3 · planner",
    "4–11 · coder",
  ])
  assert.equal(byAgent(parts.slice(0, 4)), null)
})
