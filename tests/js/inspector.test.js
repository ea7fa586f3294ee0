// What is said of a step: in the panel, in the timeline, below the graph, by mouse and by key; and the reader.

import assert from "node:assert/strict"
import { test } from "node:test"

import { becomes, drawn, show, told } from "./page.js"

const { runs } = told
const FIVE = runs["five steps"]
const { root } = FIVE.finished.run
const heading = (page) => page.text(".inspector h3")

function assertSelected(page, step, agent) {
  assert.equal(heading(page), `Step ${step} · ${agent}`)
  assert.ok(page.find(`.pane[data-step="${step}"]`).classList.contains("selected"))
  assert.equal(page.find(`.twin [data-step="${step}"]`).getAttribute("aria-pressed"), "true")
  assert.deepEqual(
    page.all(".timeline-row[aria-pressed='true']").map((row) => row.dataset.step),
    [String(step)],
  )
}

test("the keyboard goes where the mouse can", async () => {
  const page = await show(FIVE)
  page.named(/^Step 0, planner, done, .*reads nothing$/).focus()
  await page.press("ArrowRight", "ArrowRight", "ArrowRight")
  assert.match(page.focused.getAttribute("aria-label"), /^Step 3, verifier, done, .*reads 0, 1, 2$/)
  await page.press("Enter")
  assert.equal(heading(page), "Step 3 · verifier")
  assert.equal(page.focused, page.find(".inspector h3"))
  page.named("What it saw").focus()
  await page.press("End")
  assert.equal(page.focused.textContent, "Cost")
  assert.equal(page.find(".map").querySelectorAll("[aria-hidden=true] [tabindex='0']").length, 0)
})

test("an address that names a step shows it first, and one that names none of this run does not", async () => {
  const selected = async (address) => {
    history.replaceState(null, "", address)
    return heading(await show(FIVE))
  }
  try {
    const { run_id } = FIVE.finished.run
    assert.equal(await selected(`/run?run=${run_id}&step=3`), "Step 3 · verifier")
    assert.equal(await selected(`/run?run=${run_id}&step=99`), "Step 4 · writer")
    assert.equal(await selected("/run?run=another&step=3"), "Step 4 · writer")
  } finally {
    history.replaceState(null, "", "/run?run=r")
  }
})

test("the panel says what a step saw, what was withheld, and what was not there yet", async () => {
  const page = await show(FIVE)
  const step = (index) => root.steps[index]
  await page.click(page.named(/^Step 4, writer/))
  const [read, ...others] = page.all(".inspector .got")
  assert.equal(others.length, 0)
  assert.match(read.textContent, /3 · verifier/)
  // All of it can be read here, and a press on it stays here.
  await page.click(read.querySelector(".prose"))
  assert.equal(heading(page), "Step 4 · writer")
  const held = () => page.all(".inspector .held:not(.absent)")
  assert.equal(held().length, 3)
  await page.click(held()[0].querySelector("[aria-label*='Show what it missed'], button:not(.name)"))
  const last = step(0).output.trim().split("\n").at(-1).replace(/[*` ]/g, "")
  assert.ok(held()[0].querySelector(".prose").textContent.replace(/[*` ]/g, "").includes(last))
  assert.equal(page.find(".inspector .absent"), null)
  await page.click([...read.querySelectorAll("button")].find((each) => /3 · verifier/.test(each.textContent)))
  assert.equal(heading(page), "Step 3 · verifier")
  // Step 2 ran beside step 1, which its access list does not grant either: nothing was kept from it.
  await page.click(page.named(/^Step 2, calculator/))
  assert.match(page.texts(".inspector .section")[0], /^It read ?1 of 1 earlier output · (\d+) of \1 tok/)
  assert.equal(held().length, 0)
  assert.equal(page.texts(".inspector .section").at(-1), "Not there yet when it started")
  assert.match(page.text(".inspector .absent"), /1 · reasoner/)
  await page.click(page.named(/^Step 4, writer/))
  await page.tab("Messages", ".inspector")
  assert.equal(page.all(".inspector .message pre").at(-1).textContent, step(4).messages.at(-1).content)
  await page.tab("Cost", ".inspector")
  const cost = page.text(".inspector")
  assert.ok(cost.includes(`${step(4).usage.output_tokens} tok`))
  assert.match(cost, /Speed ?(\d+ tokens\/s|–)/)
  assert.match(cost, /simulated/)
})

test("a click in the timeline selects its step in graph and panel", async () => {
  const page = await show(FIVE)
  const rows = page.all(".timeline-row")
  assert.equal(rows.length, 5)
  await page.tab("Timeline", ".lower")
  assert.equal(rows[4].getAttribute("aria-pressed"), "true")
  await page.click(rows[1])
  assertSelected(page, 1, "reasoner")
  await page.click(page.named(/^Step 3, verifier/))
  assertSelected(page, 3, "verifier")
  rows[3].focus()
  await page.press("ArrowUp")
  assertSelected(page, 2, "calculator")
  assert.equal(page.focused, rows[2])
  assert.deepEqual([rows[2].tabIndex, rows[3].tabIndex], [0, -1])
})

test("a step is read whole from its pane and from the panel, JSON on lines of its own", async () => {
  const page = await show(runs["nested json"])
  await page.tab("Output", ".inspector")
  await page.click(page.named("Show all of the output", ".inspector button"))
  const reader = page.find("dialog.reader")
  await becomes(() => reader.querySelector("pre"))
  assert.equal(reader.querySelector("pre").textContent, '{\n  "a": {\n    "b": 1.0\n  }\n}')
  reader.close()
  await page.click("Show all of the output of step 0")
  assert.ok(reader.open)
  assert.equal(reader.querySelector("h2").textContent, "0 · scientist")
  await page.click(reader.querySelector(".close"))
  assert.ok(!reader.open)
  await drawn()
  assert.equal(page.focused.getAttribute("aria-label"), "Show all of the output of step 0")
})
