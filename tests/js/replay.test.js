// A finished run played again: by keyboard alone, from a link, and with its waits cut.

import assert from "node:assert/strict"
import { test } from "node:test"

import { becomes, show, told } from "./page.js"

const { runs } = told
const clock = (page) => page.text(".replay-clock")
const status = (page) => page.text(".bar .status")
const ofStep = (page, step) => page.find(`.pane[data-step="${step}"]`)

// Opens the replay by keyboard, and stands at its beginning.
async function opened(page) {
  page.named(/^▶ Replay/).focus()
  await page.press("Enter")
  await becomes(() => page.focused?.getAttribute("aria-label") === "Pause" || page.focused?.textContent === "Pause")
  await page.press(" ")
  assert.ok(page.named("Play"))
  await page.press("Home")
  assert.equal(clock(page), "0:00.0 / 0:07.0")
}

test("by keyboard alone a person reaches a moment and comes back", async () => {
  const page = await show(runs["seven seconds"])
  assert.match(status(page), /Completed 3 of 3/)
  const before = page.text(".bar .lines")
  await opened(page)
  assert.match(status(page), /Running · planning/)
  assert.equal(page.all(".pane").length, 0)
  await page.press("ArrowRight", "ArrowRight", "ArrowRight") // the plan began, was written, step 0 began
  assert.equal(ofStep(page, 0).dataset.status, "running")
  await page.press("ArrowRight")
  assert.equal(page.text('.pane[data-step="0"] .prose'), "forty-two")
  assert.equal(ofStep(page, 2).dataset.status, "waiting")
  assert.deepEqual([page.text(".bar .tokens"), page.text(".bar .cost")], ["25 tokens", "$0.5000"])
  await page.press("ArrowLeft")
  assert.equal(ofStep(page, 0).dataset.status, "running")
  await page.press("End")
  assert.match(status(page), /Completed 3 of 3/)
  assert.ok(page.visible(".replay"))
  await page.press("Escape")
  assert.ok(!page.visible(".replay"))
  assert.equal(page.focused, page.named(/^▶ Replay/))
  assert.equal(page.text(".bar .lines"), before)
  assert.equal(page.written.at(-1), null)
})

test("space plays and pauses wherever no control has the focus, and it stops at the end", async () => {
  const page = await show(runs["seven seconds"])
  await opened(page)
  page.find(".moment").focus()
  page.find(".speed").value = "20"
  page.find(".speed").dispatchEvent(new Event("change"))
  await page.press(" ")
  assert.ok(page.named("Pause"))
  await page.press(" ")
  assert.ok(page.named("Play"))
  await page.press(" ")
  await becomes(() => clock(page) === "0:07.0 / 0:07.0")
  assert.equal(page.text('.pane[data-step="0"] .prose'), "forty-two")
  await becomes(() => page.named("Play"))
})

test("a link names a moment", async () => {
  const page = await show(runs["seven seconds"], { at: "5" })
  await becomes(() => clock(page) === "0:05.0 / 0:07.0")
  assert.equal(page.text('.pane[data-step="1"] .prose'), "42")
})

test("a wait is cut and the page says so", async () => {
  const page = await show(runs.waited, { at: "0" })
  await becomes(() => clock(page) === "0:00.0 / 0:08.4")
  assert.equal(page.text(".replay-cut"), "pauses cut to 3 s")
  assert.match(page.find(".replay-cut").title, /59 min 59 s/)
})
