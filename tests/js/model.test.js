import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { RunModel } = await live("model.js")
const { shownStatus, STEP_STATUS } = await live("status.js")

const round = (told) => ({ path: [], status: "planning", raw: "model_id = [0]", messages: [], workflow: null, ...told })
const drafts = [{ round: [], steps: [{ instruction: "Solve it.", agent: "solver", access_list: null, reads: [] }] }]
const snapshot = (run, root) => ({
  type: "snapshot",
  sequence: 1,
  elapsed_ms: 0,
  run: { status: "running", root: { ...root, steps: [] }, ...run },
  drafts,
  layout: null,
  shape: "",
  timeline: null,
  conclusion: null,
  advice: { by_code: {}, otherwise: "" },
})
const usage = (output_tokens) => ({ input_tokens: 2 * output_tokens, output_tokens, estimated: false })
const stepAt = (path, told) => ({
  path,
  agent: "solver",
  status: "waiting",
  reads: [],
  round: null,
  output: "",
  usage: usage(0),
  cost_usd: 0,
  known_usd: 0,
  finish_reason: null,
  attempts: [],
  ...told,
})
const run = (steps, told) => {
  const model = new RunModel()
  const pool = { workers: [{ name: "solver", max_concurrency: 1 }] }
  const message = snapshot({ pool, approvals: [], last_step: null, ...told }, round({ status: "planned" }))
  message.run.root.steps = steps
  message.drafts = []
  model.apply(message)
  return model
}
const words = (model) => model.ordered().map((step) => STEP_STATUS[shownStatus(step)].word)

test("in a cancelled run nothing is being written: not in the open page, and not after a reload", () => {
  const model = new RunModel()
  model.apply(snapshot({}, round()))
  assert.deepEqual(words(model), ["being written"])
  const unfinished = round({ status: "unfinished" })
  const end = { type: "patch", sequence: 2, elapsed_ms: 5, run: { status: "cancelled" }, steps: [] }
  const touched = model.apply({ ...end, rounds: [unfinished] })
  assert.deepEqual([words(model), touched.structure], [["plan not finished"], true])
  const reloaded = new RunModel()
  reloaded.apply(snapshot({ status: "cancelled" }, unfinished))
  assert.deepEqual(words(reloaded), ["plan not finished"])
})

test("waiting for a slot of a worker looks different from waiting for a step", () => {
  const steps = () => [stepAt([0], { status: "running" }), stepAt([1]), stepAt([2], { reads: [0] })]
  const model = run(steps())
  assert.deepEqual(words(model), ["running", "waiting for a slot", "waiting"])
  const done = stepAt([0], { status: "completed", finish_reason: "stop" })
  const patch = { type: "patch", sequence: 2, elapsed_ms: 5, run: {}, rounds: [] }
  const touched = model.apply({ ...patch, steps: [done] })
  assert.deepEqual(words(model), ["done", "waiting for a slot", "waiting for a slot"])
  assert.deepEqual([...touched.steps], ["0", "2"], "a card whose word changes is drawn again")
  assert.deepEqual(words(run(steps(), { last_step: 2 })), ["running", "waiting", "waiting"], "step 1 is not needed")
  assert.deepEqual(words(run(steps(), { status: "queued" }))[1], "waiting")
})

test("a step of the Conductor spends what its round does, wherever that is shown", () => {
  const inner = { ...round({ status: "planned" }), path: [1], usage: usage(10), cost_usd: 0.25, known_usd: 0.25 }
  const below = [stepAt([1, 0], { status: "completed", usage: usage(5), cost_usd: null, at_list_price: true })]
  const opener = stepAt([1], {
    status: "completed",
    agent: "conductor",
    output: "42",
    round: { ...inner, steps: below },
  })
  const model = run([stepAt([0], { usage: usage(7) }), opener])
  const spent = { usage: usage(15), cost_usd: null, known_usd: 0.25, at_list_price: true, cost_at_most: false }
  assert.deepEqual(model.spentOn(model.step("1")), spent)
  assert.deepEqual(
    ["0", "1", "1.0"].map((key) => model.stepTokens(model.step(key))),
    [7, 15, 5],
  )
})

test("what the Conductor reads, and writes before its plan, counts while it comes", () => {
  const model = new RunModel()
  const messages = [{ role: "user", content: "four".repeat(6) }]
  const started = snapshot({ usage: usage(0), approvals: [] }, round({ raw: "", reasoning: "", messages }))
  model.apply({ ...started, drafts: [] })
  const delta = { type: "plan_delta", round: [], draft: null, text: "four".repeat(10) }
  model.apply({ ...delta, sequence: 2, reasoning: true })
  model.apply({ ...delta, sequence: 3, reasoning: false })
  assert.equal(model.totalTokens(), 10 + 20, "as its cost does")
})
