// Judging a run on its page: by mouse and by key, the answer or the chosen step, and what the server says.

import assert from "node:assert/strict"
import path from "node:path"
import { test } from "node:test"

import { becomes } from "./page.js"

const { Judging } = await import(
  path.resolve(import.meta.dirname, "../../pages/components/live_workflow/assets/judging.js")
)

const AT = "2026-01-31T12:00:00Z"
const kept = (more) => ({
  id: 1,
  step: null,
  mark: "right",
  score: null,
  note: "",
  by: "person",
  words: "right",
  judge: "ada",
  mine: true,
  at_utc: AT,
  compared_with: null,
  ...more,
})

async function begin({ found = [], selected = "2", ended = true } = {}) {
  const sent = []
  const answers = { found, fault: null }
  const ask = async (runId, verdict) => {
    if (verdict) sent.push(verdict)
    if (answers.fault) throw new Error(answers.fault)
    return answers.found
  }
  const judging = new Judging({ root: document.createElement("div"), ask, packed: null })
  document.body.replaceChildren(judging.element)
  const show = (more) => judging.show({ run: { run_id: "r" }, ended, replayed: false, ...more }, selected, {})
  show()
  await becomes(() => true)
  const press = async (key, more = {}) => {
    ;(more.at ?? document.body).dispatchEvent(
      new KeyboardEvent("keydown", { key, bubbles: true, composed: true, ...more }),
    )
    await becomes(() => true)
  }
  return { judging, sent, answers, press, show }
}

test("one key judges the answer, a later one replaces it, and the note stays", async () => {
  const { judging, sent, answers, press } = await begin()
  answers.found = [kept({ mark: "wrong", words: "wrong, 0.5", score: 0.5, note: "No year." })]
  await press("w")
  assert.deepEqual(sent, [{ step: null, mark: "wrong", score: null, note: "" }])
  assert.equal(judging.wrong.getAttribute("aria-pressed"), "true")
  assert.match(judging.lines.textContent, /✗ wrong, 0\.5ada · .*: No year\.Undo/)
  await press("R")
  assert.deepEqual(sent[1], { step: null, mark: "right", score: 0.5, note: "No year." })
  judging.destroy()
})

test("the chosen step is judged once a person says so", async () => {
  const found = [kept(), kept({ id: 2, step: "2", mark: "wrong", words: "wrong", mine: false, judge: "bob" })]
  const { judging, sent, press } = await begin({ found })
  assert.equal(judging.lines.children.length, 1)
  judging.ofStep.click()
  assert.match(judging.lines.textContent, /✗ wrongbob/)
  assert.doesNotMatch(judging.lines.textContent, /Undo/, "only its judge takes it back")
  assert.equal(judging.wrong.getAttribute("aria-pressed"), "false")
  await press("r")
  assert.equal(sent[0].step, "2")
  judging.destroy()
})

test("Undo takes back the own judgement", async () => {
  const { judging, sent, answers } = await begin({ found: [kept({ id: 7 })] })
  answers.found = []
  judging.lines.querySelector("button").click()
  await becomes(() => judging.lines.hidden)
  assert.deepEqual(sent, [{ takes_back: 7 }])
  judging.destroy()
})

test("N opens a note with a score, letters in it are no shortcuts, and Escape leaves it", async () => {
  const { judging, sent, press } = await begin()
  await press("n")
  assert.equal(judging.form.hidden, false)
  await press("r", { at: judging.note })
  assert.deepEqual(sent, [])
  judging.note.value = " Well done. "
  judging.score.value = "0.75"
  judging.form.dispatchEvent(new Event("submit", { cancelable: true }))
  await becomes(() => judging.form.hidden)
  assert.deepEqual(sent, [{ step: null, mark: null, score: 0.75, note: "Well done." }])
  await press("n")
  await press("Escape", { at: judging.note })
  assert.equal(judging.form.hidden, true)
  judging.destroy()
})

test("what was not kept is said, and the note stays open", async () => {
  const { judging, answers, press } = await begin()
  answers.fault = "the disk <b>is full"
  await press("n")
  judging.note.value = "x"
  judging.form.dispatchEvent(new Event("submit", { cancelable: true }))
  await becomes(() => !judging.fault.hidden)
  assert.equal(judging.fault.textContent, "Not kept: the disk <b>is full")
  assert.equal(judging.form.hidden, false)
  judging.destroy()
})

test("nothing is judged of a run that goes on, is played again or is edited", async () => {
  const { judging, sent, press, show } = await begin({ ended: false })
  assert.equal(judging.element.hidden, true)
  await press("r")
  show({ ended: true, replayed: true })
  await press("r")
  judging.show({ run: { run_id: "r" }, ended: true, replayed: false }, "2", { editor: {} })
  await press("r", {})
  assert.equal(judging.element.hidden, true)
  show({ ended: true })
  await press("r", { ctrlKey: true })
  assert.deepEqual(sent, [])
  judging.destroy()
})

test("names and notes are text, whatever is in them", async () => {
  const hostile = "<img src=x onerror=alert(1)>\u202e"
  const { judging } = await begin({ found: [kept({ judge: hostile, note: hostile })] })
  assert.equal(judging.element.querySelector("img"), null)
  assert.doesNotMatch(judging.lines.textContent, /\u202e/)
  judging.destroy()
})
