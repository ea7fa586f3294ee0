// A step whose client brings tools: its turns in the panel, the wait in bar and graph, what it was told; and the turns of
// a conversation above the run.

import assert from "node:assert/strict"
import { test } from "node:test"

import { becomes, drawn, show, told } from "./page.js"

const { runs, waits } = told
const TOOLS = { messages: [waits[0]] }
const HOSTILE = "<img src=x onerror=alert(1)>"

test("a run that waits for tools says so, and offers no approval", async () => {
  const page = await show({}, TOOLS)
  assert.match(page.text(".bar .what"), /^Waits for its client’s tools: weather$/)
  assert.match(page.text(".bar .asks-line"), /since .*step 0 · solver/)
  assert.ok(page.visible(page.named("Cancel")))
  for (const words of [/^Approve/, "Deny", "Change a step"]) assert.equal(page.named(words), undefined)
  assert.equal(page.find(".bar").getAttribute("aria-label"), "The run")
  assert.match(page.text(".twin [data-step='0']"), /⚒/)
  assert.match(page.text(".legend"), /⚒ waits for tools/)
  assert.match(page.text(".pane[data-step='0']"), /It called weather, and waits for what they bring/)
  assert.match(page.text(".bar .asker"), /my app, api → fugu-ultra/)
})

test("turns are shown in order as they come, then the output", async () => {
  const page = await show({}, TOOLS)
  assert.equal(page.named("Output", ".inspector [role=tab]").getAttribute("aria-selected"), "true")
  const turns = () => page.texts(".inspector .turn")
  assert.equal(turns().length, 1)
  assert.match(
    turns()[0],
    /^Turn 115 tok · \$0\.2500 ?Let me look\..*weather.*"place": "Oslo".*Waits for the client since/,
  )
  const first = page.find(".inspector .turn .tool-call")
  for (const message of waits.slice(1)) page.view.receive(message)
  await becomes(() => /Completed/.test(page.text(".bar .status")))
  await drawn()
  assert.equal(turns().length, 2)
  assert.doesNotMatch(turns().join(), /Waits for/)
  assert.match(turns()[0], /"degrees": 7.*Result ?after 1 min 15 s.*The client added ?Only today/)
  assert.match(turns()[1], /✕ Error.*From here on · tools: .*weather.*onerror/)
  assert.match(page.text(".inspector .tools"), /^Then its output/)
  assert.match(page.text(".inspector-body"), /"rain": ?false/)
  assert.ok(first, "it was there")
})

test("a long result is folded, opens in place, and is copied as it came", async () => {
  const page = await show(runs.tools)
  const boxes = page.all(".inspector .turn:first-child .tool-result")
  const long = boxes.find((box) => /line 1/.test(box.textContent))
  assert.doesNotMatch(long.textContent, /line 39/)
  await page.click(long.querySelector(".more"))
  assert.match(long.textContent, /line 39/)
  let copied = null
  navigator.clipboard.writeText = async (text) => (copied = text)
  await page.click(page.find(".inspector .tool-call .copy"))
  assert.equal(copied, '{"place": "Oslo"}')
})

test("what it saw has the system text, the conversation, and the turns as they were sent back", async () => {
  const page = await show(runs.tools)
  await page.tab("What it saw", ".inspector")
  const said = page.text(".inspector-body")
  assert.match(said, /System text.*Be brief\..*Show all 8 lines.*The conversation before.*2 turns.*Hello\./)
  assert.deepEqual(
    page.all(".told .role").map((role) => role.textContent),
    ["user", "assistant", "assistant", "user", "assistant", "user"],
  )
  await page.tab("Messages", ".inspector")
  assert.match(
    page.text(".inspector-body"),
    /Exactly as sent: 4 messages.*Sent after these with later calls: 6 messages/,
  )
  assert.match(page.texts(".inspector .message").at(-1), /Write JSON\.$/)
})

test("a correction shows what the worker was told", async () => {
  const page = await show(runs.tools)
  assert.match(page.text(".inspector .notice"), /not JSON; told so, and asked again/)
  assert.match(
    page.text(".inspector-body"),
    /What attempt 1 wrote ?It is 7\.What the worker was told then ?Write JSON\./,
  )
})

test("how the request came is with the plan", async () => {
  const page = await show(runs.tools)
  await page.click(".plan-button")
  await page.tab("Plan", ".inspector")
  assert.match(
    page.text(".inspector-body"),
    /asked through the endpoint: Responses, model fugu-ultra, by my app, api.*the client’s tools: weather/,
  )
})

test("hostile calls, results and names are inert everywhere", async () => {
  const page = await show(runs["hostile tools"])
  const inert = () => assert.deepEqual(page.all("script, img, iframe, style, [onerror], [onclick]"), [])
  assert.ok(page.text(".inspector .turn").includes(HOSTILE))
  for (const tab of ["Output", "What it saw", "Messages", "Cost"]) {
    await page.tab(tab, ".inspector")
    inert()
  }
  await page.click(".plan-button")
  inert()
  assert.ok(page.text(".inspector-body").includes(HOSTILE))
  assert.equal(window.pwned, undefined)
})

// The conversation.

const turn = (number, more = {}) => ({
  run: `r${number}`,
  number,
  task: `Task ${number} ${HOSTILE}`,
  said: number === 3 ? "" : `Answer ${number}`,
  status: number === 3 ? "waiting" : "completed",
  tokens: 10 * number,
  current: number === 2,
  ...more,
})

async function inConversation(turns) {
  const page = await show(runs.tools)
  page.view.turns = turns
  page.view.queue()
  await drawn()
  return page
}

test("a run that is alone has no strip", async () => {
  const page = await inConversation(null)
  assert.ok(!page.visible(".conversation"))
})

test("the turns are links in order, the current one marked, the newest open", async () => {
  const page = await inConversation([turn(1), turn(2), turn(3)])
  const cards = page.all(".turn-card")
  assert.deepEqual(
    cards.map((card) => page.text(card)),
    [`1 Task 1 ${HOSTILE}✓Answer 110 tok`, `2 Task 2 ${HOSTILE}✓Answer 220 tok`, `3 Task 3 ${HOSTILE}‖ waits30 tok`],
  )
  assert.deepEqual(
    cards.map((card) => [card.getAttribute("aria-current"), card.classList.contains("newest"), card.tabIndex]),
    [
      [null, false, -1],
      ["page", false, 0],
      [null, true, -1],
    ],
  )
  assert.equal(page.text(".conversation b"), "Turn 2 of 3")
  assert.deepEqual(page.all(".conversation img"), [])
  cards[1].focus()
  await page.press("ArrowRight")
  assert.equal(page.focused, cards[2])
  await page.press("Home")
  assert.equal(page.focused, cards[0])
  cards[0].click()
  assert.deepEqual(page.intents.at(-1), { kind: "open-run", path: null, run_id: "r", name: "r1" })
  cards[1].click()
  assert.equal(page.intents.length, 1, "the current one is open")
})

test("what Conductor and steps read of it is one press away", async () => {
  const page = await inConversation([turn(1), turn(2)])
  assert.equal(page.text(".readers"), "Read by step 0, not by the Conductor")
  await page.click(page.named("the Conductor", ".readers button"))
  assert.equal(page.named("Prompt", ".inspector [role=tab]").getAttribute("aria-selected"), "true")
  await page.click(page.named("0", ".readers button"))
  assert.equal(page.named("What it saw", ".inspector [role=tab]").getAttribute("aria-selected"), "true")
  assert.match(page.text(".inspector-body"), /The conversation before/)
  const said = page.view.model.run.turns_before.at(-1).content
  page.view.model.rounds.get("").messages = [{ role: "user", content: `Assistant: ${said}\n\nTask: Rain?` }]
  page.view.queue()
  await drawn()
  assert.equal(page.text(".readers"), "Read by the Conductor and step 0")
})

test("a new turn appears, and nobody loses the focus", async () => {
  const page = await inConversation([turn(1), turn(2)])
  page.all(".turn-card")[1].focus()
  page.view.turns = [turn(1), turn(2), turn(3)]
  page.view.queue()
  await drawn()
  assert.equal(page.all(".turn-card").length, 3)
  assert.equal(page.focused?.getAttribute("aria-current"), "page")
})
