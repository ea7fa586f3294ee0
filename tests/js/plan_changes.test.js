import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { PlanChanges, droppedAt, expected, fieldsAsMeant, lostByMove, refusal, textAsMeant } =
  await live("plan_changes.js")
const { FULL, arrange } = await live("arrange.js")
const { distanceTo } = await live("edge_path.js")

const plan = (...reads) => reads.map((read, number) => ({ key: String(number), number, agent: "a", reads: read }))
const reads = (steps) => steps.map(({ key, reads: read }) => [key, read])

test("what the plan does not allow is said before it is tried", () => {
  const [first, second, third] = plan([], [0], [])
  assert.equal(refusal(first, third), "")
  assert.equal(refusal(first, second), "step 1 sees step 0 already")
  assert.equal(refusal(third, first), "step 0 comes before step 2")
  assert.equal(refusal(first, first), "a step does not see itself")
})

test("a step is dropped before or after another, as numbered without itself", () => {
  assert.deepEqual(
    [droppedAt(3, 1, false), droppedAt(3, 1, true), droppedAt(0, 2, false), droppedAt(0, 2, true)],
    [1, 2, 1, 2],
  )
})

test("a moved step takes its accesses along as far as they still point back", () => {
  const steps = plan([], [0], [0, 1], [2])
  assert.deepEqual(reads(expected(steps, [{ kind: "move", step: 2, to: 1 }])), [
    ["0", []],
    ["2", [0]],
    ["1", [0]],
    ["3", [1]],
  ])
  const shifts = [
    { kind: "shift", step: 2, by: -1 },
    { kind: "shift", step: 0, by: -1 },
  ]
  assert.deepEqual(
    expected(steps, shifts).map(({ key }) => key),
    ["0", "2", "1", "3"],
  )
  assert.deepEqual([lostByMove(steps, 2, 1), lostByMove(steps, 3, 0), lostByMove(steps, 1, 1)], [1, 1, 0])
})

test("changes that wait build on each other, and those of steps that are gone do nothing", () => {
  const changes = [
    { kind: "move", step: 3, to: 1 },
    { kind: "give", step: 2, read: 3 },
    { kind: "cut", step: 1, read: 0 },
    { kind: "cut", step: 9, read: 0 },
    { kind: "undo" },
  ]
  assert.deepEqual(reads(expected(plan([], [0], [1], []), changes)), [
    ["0", []],
    ["3", []],
    ["1", []],
    ["2", [1, 2]],
  ])
})

test("each message has all changes that were not taken, and none of another run", () => {
  const sent = []
  const changes = new PlanChanges(
    (value) => sent.push(value),
    () => false,
  )
  const numbers = () => sent.at(-1).changes.map(({ number }) => number)
  changes.of("run")
  changes.make({ kind: "cut", step: 1, read: 0 })
  changes.make({ kind: "give", step: 2, read: 0 })
  assert.deepEqual([numbers(), sent.length, sent[1].run_id], [[1, 2], 2, "run"])
  changes.taken({ page: "another page", number: 2 })
  assert.equal(changes.waiting.length, 2)
  changes.taken({ page: changes.page, number: 1 })
  changes.tell()
  assert.equal(sent.length, 2, "what was said is said again only after a while")
  changes.tell(true)
  assert.deepEqual([numbers(), sent.length], [[2], 3])
  changes.of("another")
  changes.make({ kind: "cut", step: 1, read: 0 })
  assert.deepEqual(numbers(), [3])
  changes.destroy()
})

test("a message waits until the page rests", async () => {
  const sent = []
  let busy = true
  const changes = new PlanChanges(
    (value) => sent.push(value),
    () => busy,
  )
  changes.make({ kind: "undo" })
  changes.make({ kind: "redo" })
  assert.deepEqual(sent, [])
  busy = false
  await new Promise((resolve) => {
    changes.send = (value) => resolve(sent.push(value))
  })
  assert.deepEqual(
    sent.map((value) => value.changes.length),
    [2],
  )
  changes.destroy()
})

test("an edge is found along its curve and its lane, not behind the cards that it passes", () => {
  const cells = [0, 1, 2, 3].map((layer) => ({ id: String(layer), round: [], layer, order: 0, height: FULL.height }))
  const links = [
    { from: "0", to: "1" },
    { from: "0", to: "3" },
  ]
  const drawn = arrange({ cells, links }, FULL, { width: 1200, height: 400 })
  const [straight, laned] = drawn.edges.map(({ path }) => path)
  const [first, second, third] = drawn.cells
  assert.ok(distanceTo(laned, { x: second.x, y: laned.bend.y }) < 1)
  assert.ok(distanceTo(laned, { x: third.x, y: third.y }) > FULL.height / 2)
  const between = { x: (first.x + second.x) / 2, y: straight.start.y }
  assert.ok(distanceTo(straight, between) < 12)
  assert.ok(distanceTo(straight, { ...between, y: between.y + 60 }) > 30)
})

const FIELDS = [
  { key: "0", number: 0, agent: "a", access: [] },
  { key: "1", number: 1, agent: "a", access: ["0"] },
  { key: "2", number: 2, agent: "a", access: "all" },
]

test("fields show at once what Python has not made yet", () => {
  const waiting = [
    { kind: "assign", step: 1, agent: "b" },
    { kind: "cut", step: 2, read: 0 },
    { kind: "give", step: 1, read: 0 },
    { kind: "cut", step: 7, read: 0 },
  ]
  const meant = fieldsAsMeant(FIELDS, waiting)
  assert.deepEqual([meant[1].agent, meant[1].access, meant[2].access], ["b", ["0"], ["1"]])
  const turns = [{ kind: "only", step: 2 }, { kind: "all", step: 1 }, { kind: "undo" }, { kind: "all", step: 2 }]
  assert.deepEqual(
    fieldsAsMeant(FIELDS, turns).map(({ access }) => access),
    [[], "all", ["0", "1"]],
    "what an undo leads to only Python knows",
  )
  assert.deepEqual(FIELDS[2].access, "all")
})

test("a text that Python answers late is never taken back", () => {
  const typed = (step, text) => ({ kind: "instruct", step, text })
  assert.equal(textAsMeant("1", "instruct", "old", []), "old")
  assert.equal(textAsMeant("1", "instruct", "old", [typed(1, "new"), typed(2, "other")]), "new")
  assert.equal(textAsMeant("1", "instruct", "old", [typed(1, "new"), { kind: "undo" }]), null)
  assert.equal(textAsMeant("1", "instruct", "old", [{ kind: "undo" }, typed(1, "newer")]), "newer")
})

test("a text that is typed on while the page is busy is sent once, as it is by then", () => {
  const sent = []
  const changes = new PlanChanges(
    (value) => sent.push(value),
    () => false,
  )
  changes.make({ kind: "instruct", step: 1, text: "a" })
  changes.make({ kind: "instruct", step: 1, text: "ab" })
  changes.make({ kind: "instruct", step: 2, text: "c" })
  assert.deepEqual(
    sent.at(-1).changes.map(({ number, text }) => [number, text]),
    [
      [2, "ab"],
      [3, "c"],
    ],
  )
  changes.destroy()
})
