// A step whose worker calls tool servers of its pool: its turns as they come and afterwards, what it was offered, and the
// approval of a call.

import assert from "node:assert/strict"
import { test } from "node:test"

import { becomes, drawn, show, told } from "./page.js"

const { runs, calling } = told
const HOSTILE = "<img src=x onerror=alert(1)>"
const calls = (page) => page.all(".inspector .turn .tool-call").map((box) => page.text(box))
const ends = (page) => page.all(".inspector .turn :is(.result-line, .tool-result)").map((box) => page.text(box))

test("a call that waits for an approval says what would be called, with what", async () => {
  const page = await show({}, { messages: [calling[0]] })
  assert.equal(page.text(".bar .what"), "step 0 wants to call files.write (has effects)")
  assert.match(page.text(".bar .asks-line"), /with \{"text": "Paris"\} · gate: before any tool that has effects/)
  assert.match(page.text(".bar .asks-line"), /goes to files \(mcp-files\)$/)
  assert.ok(page.visible(page.named(/^Approve the call/)))
  assert.match(ends(page)[0], /^‖ Waits for approval$/)
  assert.match(ends(page)[1], /^○ Not called yet$/)
  assert.equal(page.text(".twin [data-step='0']"), "‖ 0")
  assert.match(page.text(".pane[data-step='0']"), /It waits for an approval of .*files\.write/)
})

test("calls are shown as they happen, each with its outcome in words", async () => {
  const page = await show({}, { messages: [calling[0]] })
  const seen = []
  for (const message of calling.slice(1)) {
    page.view.receive(message)
    await drawn()
    seen.push(ends(page)[0])
    if (/Being called/.test(seen.at(-1))) {
      assert.match(page.text(".legend"), /⚒ calls tools/)
      assert.match(page.text(".pane[data-step='0']"), /It calls .*files\.write/)
      assert.match(page.text(".twin [data-step='0']"), /⚒/)
    }
  }
  assert.ok(seen.includes("◔ Being called now…"), seen.join("\n"))
  await becomes(() => /Completed/.test(page.text(".bar .status")))
})

test("afterwards each call has its server, effects, time, size and outcome", async () => {
  const page = await show(runs.servers)
  await page.click(page.find(".twin [data-step='0']"))
  await page.tab("Output", ".inspector")
  assert.match(calls(page)[0], /files\.write.*◆ has effects.*"text": "Paris"/)
  assert.match(calls(page)[1], /files\.read.*◇ no effects/)
  assert.match(ends(page)[0], /^✓ Returned ?after 0\.3 s · 5 bytes.*Paris/)
  assert.match(ends(page)[1], /^⊘ Not reached, nothing was sent.*could not be reached/)
  assert.match(ends(page)[2], /^✕ Failed ?after 0\.3 s · cut, of 1\.2 MB/)
  assert.match(ends(page)[3], /^⚠ Outcome unknown, not repeated/)
  assert.doesNotMatch(page.text(".inspector-body"), /client/i)
})

test("what it saw has the tools it was offered", async () => {
  const page = await show(runs.servers)
  await page.click(page.find(".twin [data-step='0']"))
  await page.tab("What it saw", ".inspector")
  assert.match(
    page.text(".inspector-body .tool-offers"),
    /^Tools it was offered.*files.*Files 1\.2 · mcp-files.*read.*no effects.*write.*has effects.*web.*python/,
  )
  await page.click(page.find(".twin [data-step='1']"))
  assert.equal(page.text(".inspector-body .tool-offers"), "", "its worker may call none")
})

test("hostile names, arguments and results of tool servers are inert", async () => {
  const page = await show(runs["hostile servers"])
  await page.click(page.find(".twin [data-step='0']"))
  for (const tab of ["Output", "What it saw", "Messages"]) {
    await page.tab(tab, ".inspector")
    assert.deepEqual(page.all("script, img, iframe, style, [onerror], [onclick]"), [])
  }
  await page.tab("Output", ".inspector")
  assert.ok(page.text(".inspector .turn").includes(HOSTILE))
})
