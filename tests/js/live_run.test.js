// A run that goes on: what it costs so far, and a cancellation that the server refuses.

import assert from "node:assert/strict"
import { test } from "node:test"

import { becomes, show, told } from "./page.js"

const { costs } = told

test("an unknown cost is unknown while the run goes on, and what is known is a bound", async () => {
  const said = []
  for (const state of costs.unknown) {
    const page = await show({}, { messages: [state] })
    said.push(page.text(".bar .cost"))
    if (state === costs.unknown.at(-1)) {
      assert.match(page.text(".bar .status"), /Completed/)
      const why = "What this run itself spent, Conductor and workers: the price of a part is unknown"
      assert.equal(page.find(".bar .cost").title, why)
    }
  }
  assert.deepEqual(said, ["cost unknown", "at least $0.0123", "at least $0.0123"])
})

test("a priced Conductor is counted as it writes, by estimate, and has its own tab", async () => {
  let page = await show({}, { messages: [costs.priced[0]] })
  assert.equal(page.text(".bar .cost"), "$0.0350") // 5 tokens read and 3 written
  page = await show({}, { messages: [costs.priced[1]] })
  assert.equal(page.text(".bar .cost"), "$0.0600")
  await page.click(".plan-button")
  await page.tab("Cost", ".inspector")
  assert.match(page.text(".inspector"), /\$0\.0600 · at list price/)
  assert.match(page.text(".inspector"), /\$1000 in, \$10000 out per million/)
})

test("a cancellation that the server refuses is told, and the run goes on", async () => {
  const asked = []
  globalThis.fetch = async (url, { method }) => {
    asked.push([method, new URL(url).pathname])
    return { ok: false, status: 404 }
  }
  const page = await show({}, { messages: [costs.priced[1]] })
  await page.click("Cancel")
  await becomes(() => page.visible(".notice-line"))
  assert.match(page.text(".notice-line"), /could not be cancelled/)
  assert.match(page.text(".bar .status"), /Running/)
  assert.deepEqual(asked, [["POST", "/api/runs/r/cancel"]])
})
