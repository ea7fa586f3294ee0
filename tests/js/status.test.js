import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { RUN_STATUS, STEP_STATUS, advice, ended, shownStatus, takeAdvice, notWholeNote } = await live("status.js")
const step = (told) => ({ status: "running", attempts: [], output: "", reasoning: "", incomplete: false, ...told })

test("a running step that waits for its next call says why", () => {
  assert.equal(shownStatus(step({})), "running")
  assert.equal(shownStatus(step({ attempts: [{ loading: false }] })), "retrying")
  assert.equal(shownStatus(step({ attempts: [{ loading: false }, { loading: true }] })), "loading")
  assert.equal(shownStatus(step({ attempts: [{ loading: true }], output: "It" })), "running")
})

test("an answer of an old record that was cut says so", () => {
  assert.equal(shownStatus(step({ status: "completed", incomplete: true })), "incomplete")
})

test("each status has a word and a glyph", () => {
  for (const { glyph, word } of [...Object.values(STEP_STATUS), ...Object.values(RUN_STATUS)]) assert.ok(glyph && word)
  assert.deepEqual(["completed", "reused", "cut", "failed", "running"].map(ended), [true, true, true, false, false])
})

test("advice is the server's, and there is some for a code it does not know", () => {
  takeAdvice({ by_code: { Quota: "Add credit." }, otherwise: "Look at the error." })
  assert.deepEqual([advice("Quota"), advice("New")], ["Add credit.", "Look at the error."])
})

test("an output that is not whole is told to whoever looks at what a later step read", () => {
  const read = { status: "cut", incomplete: true, output: "The first", attempts: [] }
  assert.equal(notWholeNote(read), "not whole (cut off): sent as it is, without a mark")
  assert.match(notWholeNote({ ...read, status: "empty", output: "" }), /a note that there is none was sent$/)
  assert.equal(notWholeNote({ ...read, status: "completed", incomplete: false }), "")
})
