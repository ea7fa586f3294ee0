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
