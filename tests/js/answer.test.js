// The bar: the value of the answer, first; or why there is none and what to do. The tab has all of it.

import assert from "node:assert/strict"
import { test } from "node:test"

import { becomes, show, told } from "./page.js"

const { runs } = told

test("the value of the answer stands in the bar with its sentence, and all of it in its tab", async () => {
  const page = await show(runs["five steps"])
  assert.equal(page.text(".conclusion"), "13:37")
  assert.match(page.text(".bar .sentence"), /13:37/)
  assert.equal(page.find(".bar").className, "card bar answered")
  await page.tab("Answer", ".lower")
  assert.match(page.text(".answer-body"), /13:37/)
})

test("an answer without a value is its first line in the bar, and is opened whole", async () => {
  const page = await show(runs["long answer"])
  assert.equal(page.text(".bar .sentence"), "Paragraph 0 weighs one more side of it, at some length, and goes on.")
  assert.match(page.all(".answer-body p").at(-1).textContent, /Paragraph 39/)
  assert.deepEqual([page.visible(".conclusion"), page.visible(".bar .title")], [false, false])
  await page.click("Read all of the answer in full width")
  await becomes(() => page.all("dialog.reader p").length === 40)
})

test("beside the answer of a real model stand its size and the word real; a simulated worker's has neither", async () => {
  let page = await show(runs.real)
  assert.match(page.text(".bar .source"), /real, 135 million parameters/)
  assert.equal(page.text(".pane .real"), "real · 135M")
  assert.match(page.find(".pane .real").title, /a\.gguf, 135 million/)
  page = await show(runs["five steps"])
  assert.ok(!page.text(".bar .source").includes("real"))
  assert.ok(!page.visible(".pane .real"))
})

test("code, a letter, products and JSON are shown as they were written", async () => {
  let page = await show(runs.code)
  assert.equal(page.text(".conclusion"), "merge_bookings(spans)")
  await page.tab("Answer", ".lower")
  assert.match(page.text(".answer-body"), /return sorted\(spans\)/)
  page = await show(runs["a letter"])
  assert.equal(page.text(".conclusion"), "W")
  assert.ok(!page.visible(".bar .sentence"), "a short answer is not said twice")
  page = await show(runs.products)
  const shown = page.find(".pane .prose p")
  assert.equal(shown.textContent, "First x is 2*3*4, then x**2 + y**2 = z, and 2*3, (a+b)*c*(d); bolder.")
  const texts = (tag) => [...shown.querySelectorAll(tag)].map((each) => each.textContent)
  assert.deepEqual([texts("em"), texts("strong")], [["x"], ["z", "2*3", "bold"]])
  page = await show(runs.json)
  assert.ok(page.text(".conclusion").includes('"note": "x_y *b* **c**"'))
})

for (const [ending, pill, title, conclusion, hint] of [
  ["refused", "⊗ Refused", "No answer: refused", "I cannot.", "other words"],
  ["filtered", "▽ Filtered", "No answer: filtered", "The way", "A filter of the provider"],
  ["cut", "◐ Cut off", "Answer, cut off", "The legs are", "max_tokens"],
  ["empty", "∅ Empty", "No answer: empty", "It called the tool search instead of answering.", "another worker"],
])
  test(`a run whose answer is ${ending} says so, and what was done about it`, async () => {
    const page = await show(runs[ending])
    assert.ok(page.text(".bar .status").includes(pill))
    assert.equal(page.find(".bar").className, "card bar declined")
    assert.equal(page.text(".bar .title"), title)
    assert.equal(page.text(".bar .conclusion"), conclusion)
    assert.ok(page.text(".bar .hint").includes(hint))
    const pane = page.text(".pane[data-step='1']")
    assert.ok(pane.includes("attempt 1: the model refused to answer (I cannot.); solver was asked instead"))
    assert.ok(pane.includes("answered by solver in the place of checker"))
    if (ending === "empty") assert.ok(pane.includes('it called the tool search with {"q": 1}'))
  })

test("a real worker that declines is amber, in its own words", async () => {
  const page = await show(runs.declined)
  assert.equal(page.find(".bar").className, "card bar declined")
  assert.equal(page.text(".conclusion"), "I'm sorry, but I can't help with that.")
  assert.match(page.text(".bar .hint"), /another worker under Change a step/)
})

test("the advice is about what went wrong", async () => {
  const page = await show(runs["too long"])
  for (const part of [".bar .hint", "[data-step='0'].pane"]) assert.match(page.text(part), /longer context/)
  assert.doesNotMatch(page.text(".bar .hint"), /environment variable/)
})

test("a run whose end could not be written is shown as failed", async () => {
  const page = await show(runs["five steps"], { messages: told.stopped })
  assert.equal(page.text(".bar .status"), "✕ Failed 1 of 5")
  assert.equal(page.named("Cancel"), undefined)
  assert.match(page.text(".bar"), /no space left for the database/)
  assert.match(page.text(".bar"), /then resume the run/)
})

test("reasoning is folded where the writing shows", async () => {
  const page = await show(runs.reasoning)
  const folded = page.find(".pane .reasoning")
  assert.equal(folded.querySelector("summary").textContent, "Reasoning")
  assert.match(folded.textContent, /Let me add them first\./)
  assert.ok(!folded.open)
  assert.equal(page.text(".pane .prose").trim(), "It is 4.")
  await page.click(".plan-button")
  const thoughts = page.find(".inspector .reasoning")
  assert.match(thoughts.textContent, /One step should be enough here\./)
  assert.ok(!thoughts.open)
  assert.doesNotMatch(page.text(".inspector .plan-text"), /One step should be enough/)
})

test("what else the Conductor considered is words with a bar beside them, and never HTML", async () => {
  const page = await show(runs.considered)
  await page.click(".plan-button")
  const options = page
    .all(".considered dd")
    .map((row) => [...row.querySelectorAll(".option")].map((o) => o.textContent))
  const hostile = "<img src=x onerror=alert(1)> 0.50"
  assert.deepEqual(options, [
    ["solver 0.50", hostile],
    ["reads some 0.75", "reads none 0.25"],
  ])
  assert.deepEqual(
    page.all(".considered dt").map((each) => each.textContent),
    ["Step 0 · agent", "Step 0 · access list"],
  )
  const widths = page.all(".considered dd")[1].querySelectorAll(".odds i")
  assert.deepEqual(
    [...widths].map((bar) => bar.style.flexGrow),
    ["0.75", "0.25"],
  )
  assert.equal(page.find(".considered img"), null)
})

test("loading, reading, waiting and writing are told where their text will be", async () => {
  const said = async (at) => {
    const page = await show(runs.progress, { at: String(at) })
    const pane = page.find('.pane[data-step="0"]')
    return {
      bar: page.text(".bar"),
      graph: page.text(".graph-empty"),
      plan: page.text(".plan-button"),
      panel: page.text(".inspector"),
      pane: pane?.textContent,
      status: pane?.dataset.status,
    }
  }
  assert.match((await said(1)).bar, /the Conductor’s server is loading its model/)
  let now = await said(2)
  assert.match(now.bar, /the Conductor’s server failed and is asked again after 20\.0 s/)
  assert.match(now.panel, /it limits requests, 429; asked again after 20\.0 s/)
  now = await said(3)
  assert.equal(now.graph, "The Conductor: Loading the model, 25 % of 1.0 GB · about 10 s left…")
  assert.equal(now.plan, "tiny · loading…")
  now = await said(4)
  const reading = "Reading the prompt, 380 of 1,520 tok · 26/s · about 45 s left…"
  assert.equal(now.graph, `The Conductor: ${reading}`)
  assert.ok(now.panel.includes(reading))
  now = await said(5)
  assert.equal(now.graph, "The Conductor: Thinking, 20 tok · 1.5/s · about 85 s left…")
  assert.equal(now.plan, "tiny · thinking…")
  assert.match((await said(6)).panel, /This is one sum\. This is one sum\./)
  now = await said(12)
  assert.match(now.pane, /the server is loading its model and is asked again until it answers/)
  assert.equal(now.status, "loading")
  assert.match((await said(13)).pane, /it limits requests, 429; asked again after 20\.0 s/)
  assert.match((await said(14)).pane, /Loading the model, 25 % of 1\.0 GB · about 10 s left…/)
  assert.match((await said(16)).pane, /It is.*3\.3\/s|3\.3\/s.*It is/s)
})
