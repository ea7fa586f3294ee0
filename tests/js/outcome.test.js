import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { cameFrom } = await live("outcome.js")

const step = (index, reused_from = null) => [String(index), { path: [index], reused_from }]
const model = (steps, imported = null) => ({ run: { imported }, steps: new Map(steps), replayed: false })
const elsewhere = { run_id: "r", path: [0], imported: true }

test("a run says which of its answers this database did not see", () => {
  const [word, sentence] = cameFrom(model([step(0, elsewhere), step(1, elsewhere), step(2)]))
  assert.equal(word, "Imported answers")
  assert.match(sentence, /^Steps 0, 1 are reused from an imported run/)
  assert.deepEqual(cameFrom(model([step(0, { ...elsewhere, imported: false }), step(1)])), ["", ""])
})

test("a run that came with the program is called recorded, one from a file is not", () => {
  assert.equal(cameFrom(model([step(0)], { recorded: true }))[0], "Recorded")
  assert.equal(cameFrom(model([step(0)], { recorded: false }))[0], "")
})
