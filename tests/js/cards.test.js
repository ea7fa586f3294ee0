import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { drawCard } = await live("draw.js")
const { drawEditedCard } = await live("draw_edited.js")
const { drawStack, tally } = await live("draw_stack.js")

// A canvas on which each character is six pixels wide. `written` has what is on it, from top to bottom.
function canvas() {
  const written = []
  const nothing = () => {}
  const own = { written, measureText: (text) => ({ width: 6 * text.length }), fillText: (text) => written.push(text) }
  return new Proxy(own, { get: (target, name) => target[name] ?? nothing, set: () => true })
}

const colours = { stroke: "", fill: "" }
const theme = { font: "", agent: () => "", status: { done: colours, reused: colours, warn: colours, failed: colours } }
const usage = { input_tokens: 1, output_tokens: 95, estimated: false }
const step = (told) => ({
  path: [2],
  agent: "reasoner",
  instruction: "Solve it",
  reads: [],
  attempts: [],
  usage,
  ...told,
})
const box = { x: 0, y: 0, width: 162, height: 88, agentIndex: 0, selected: false, hover: false, phase: 0, theme }

function lastLine(told, value) {
  const ctx = canvas()
  const values = new Map(value ? [["2", value]] : [])
  const model = { values, stepMs: () => 3600, worker: () => null, run: {}, steps: new Map() }
  drawCard(ctx, { ...box, step: step(told), model })
  return ctx.written.slice(ctx.written.indexOf("Solve it") + 1)
}

test("a finished card ends with its time and the value of its output", () => {
  assert.deepEqual(lastLine({ status: "completed", output: "…" }, "13:43"), ["3.6 s", "13:43"])
  assert.deepEqual(lastLine({ status: "completed", output: "…" }), ["3.6 s"])
  assert.deepEqual(lastLine({ status: "reused", output: "…" }, "14:13"), ["reused", "14:13"])
})

test("a value that does not fit is left out, not cut, and shows its characters as they are", () => {
  assert.deepEqual(lastLine({ status: "completed", output: "…" }, "a sentence that is far too long"), ["3.6 s"])
  const [, shown] = lastLine({ status: "completed", output: "…" }, "1\u202e2")
  assert.ok(!shown.includes("\u202e"))
})

test("of an answer by a fallback the time stays where its name does not fit beside the value", () => {
  const told = { status: "completed", output: "…", answered_by: "helpers" }
  assert.deepEqual(lastLine(told), ["3.6 s · by helpers"])
  assert.deepEqual(lastLine({ ...told, answered_by: "a name of many words" }), ["3.6 s · by another"])
  assert.deepEqual(lastLine(told, "13:43"), ["3.6 s", "13:43"])
})

test("an edited card says which value stays and which one was", () => {
  const draw = (fate, words) => {
    const ctx = canvas()
    const edited = { ...step(), key: "2", number: 2, was: 2, change: null, fate, words }
    drawEditedCard(ctx, { ...box, step: edited, model: { values: new Map([["2", "14:13"]]) } })
    return ctx.written.slice(ctx.written.indexOf("Solve it") + 1)
  }
  assert.deepEqual(draw("reused", "unchanged"), ["↺ reused", "14:13"])
  assert.deepEqual(draw("runs", "reads step 1, which runs"), ["▶ runs", "was 14:13"])
})

test("a stack counts the values in it, the most frequent first", () => {
  assert.equal(tally(["41", "42", "42"]), "2 × 42, 1 × 41")
  assert.equal(tally(["1", "2", "2", "3", "4"]), "2 × 2, 1 × 1, 2 others")
  const ctx = canvas()
  const cell = { keys: ["0", "1", "2"], stack: { kind: "done", agent: "solver" }, x: 0, y: 0, width: 200, height: 70 }
  const steps = cell.keys.map(() => step({ status: "completed", output: "" }))
  drawStack(ctx, { cell, steps, numbers: cell.keys, totals: 30, values: ["42", "42", "41"], agentIndex: 0, theme })
  assert.ok(ctx.written.includes("✓ 3 done · 2 × 42, 1 × 41"), ctx.written.join(" | "))
})

test("a compact card names no place of the task", () => {
  const ctx = canvas()
  const told = step({ status: "waiting", output: "", instruction: "Solve it: {question}" })
  drawCard(ctx, { ...box, height: 46, step: told, model: { values: new Map() } })
  assert.ok(!ctx.written.join().includes("{question}"))
})
