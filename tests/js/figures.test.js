import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { retryLines } = await live("departures.js")
const { roundLine } = await live("format.js")
const { planRows, speed, stepRows } = await live("figures.js")
const { RunModel } = await live("model.js")

const cached = { input: 1, output: 10, cached_input: 0.1, cache_write: null, long: null }
const usage = (told) => ({ input_tokens: 100_000, output_tokens: 20, estimated: false, ...told })
const stepAt = (path, told) => ({
  path,
  agent: "solver",
  status: "completed",
  reads: [],
  output: "",
  usage: usage(),
  cost_usd: 0.011,
  known_usd: 0.011,
  at_list_price: true,
  started_ms: 0,
  first_token_ms: 100,
  duration_ms: 1100,
  finish_reason: "stop",
  attempts: [],
  model: null,
  ...told,
})
const round = (told) => ({ path: [], status: "planned", rejected: [], retries: [], messages: [], raw: "", ...told })
const run = (steps, rounds = [], told = {}) => {
  const model = new RunModel()
  model.run = {
    status: "completed",
    pool: { workers: [{ name: "solver", model: "s-1", usd_per_mtok: cached }] },
    conductor: { name: "planner", model: "p-1", kind: "remote", usd_per_mtok: { input: 2, output: 8 } },
    ...told,
  }
  for (const step of steps) model.steps.set(step.path.join("."), step)
  for (const each of rounds) model.rounds.set(each.path.join("."), each)
  return model
}
const shown = (rows) => Object.fromEntries(rows)

test("tokens of caches, of reasoning and of a server's own work are named where they are known, and their prices", () => {
  const told = usage({ cached_input_tokens: 99_000, reasoning_tokens: 12, orchestration_input_tokens: 40 })
  const step = stepAt([0], { usage: told })
  const rows = shown(stepRows(run([step]), step))
  assert.equal(rows.Input, "100,000 tok, of these 99,000 tok from the cache, 40 tok for its server’s own workflow")
  assert.equal(rows.Output, "20 tok, of these 12 tok of reasoning")
  assert.equal(rows.Price, "$1 in, $0.1 in from the cache, $10 out per million")
  const plan = shown(planRows(run([]), round({ usage: told, cost_usd: 0.011, known_usd: 0.011 })))
  assert.equal(plan.Input, rows.Input)
})

test("a step of the Conductor shows the Conductor's model and price, and its cost with the round's", () => {
  const opener = stepAt([0], { agent: "conductor", usage: usage({ input_tokens: 0, output_tokens: 0 }), cost_usd: 0 })
  const inner = round({ path: [0], usage: usage({ cached_input_tokens: 7 }), cost_usd: 0.5, known_usd: 0.5 })
  const below = stepAt([0, 0], { usage: usage({ cached_input_tokens: 3 }) })
  const rows = shown(stepRows(run([opener, below], [inner]), opener))
  assert.equal(rows.Price, "the Conductor’s: $2 in, $8 out per million")
  assert.equal(rows.Model, "the Conductor’s: p-1")
  assert.match(rows.Cost, /^\$0\.5110 · with round 2/)
  assert.match(rows.Input, /^200,000 tok, of these 10 tok from the cache$/)
})

test("the speed is that of the last call alone", () => {
  const failed = { usage: usage({ output_tokens: 30 }) }
  const step = stepAt([0], { usage: usage({ output_tokens: 50 }), attempts: [failed] })
  assert.equal(speed(step, run([step])), 20)
  const kept = { ...step, first_token_ms: null }
  assert.equal(speed(kept, run([kept])), 0, "nobody knows how long the last call took")
})

test("a count that nobody told but us is marked", () => {
  const guess = stepAt([0], { usage: usage({ output_tokens: 23, estimated: true }), status: "cancelled" })
  assert.equal(run([guess]).stepTokensSaid(guess), "≈ 23 tok")
  const exact = stepAt([0])
  assert.equal(run([exact]).stepTokensSaid(exact), "20 tok")
})

test("each failed call of a plan has its own number", () => {
  const retry = { attempt: 1, loading: false, error: "gone", error_code: "ConductorStreamCut", wait_ms: 500 }
  const lines = retryLines({ retries: [retry, retry, { ...retry, attempt: 2 }] }, (text) => text)
  assert.deepEqual(
    lines.map((line) => line.slice(0, line.indexOf(" failed"))),
    ["↻ call 1", "↻ call 2", "↻ call 1 of attempt 2"],
  )
  assert.ok(
    lines.every((line) => !line.includes("Conductor")),
    "no name of a class",
  )
})

test("a round that failed has not answered", () => {
  assert.equal(roundLine({ path: [1], status: "completed" }), "answered by round 2, opened by step 1")
  assert.equal(roundLine({ path: [1], status: "failed" }), "round 2, opened by step 1, failed")
})
