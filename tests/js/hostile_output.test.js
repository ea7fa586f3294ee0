// Model output is data: in the view it is text or inert Markdown. That nothing of it runs or is fetched on any page is
// seen in a browser.

import assert from "node:assert/strict"
import { test } from "node:test"

import { show, told } from "./page.js"

const TAGS =
  "script, img, iframe, style, object, embed, video, form:not(.judge-form), link, base, [onclick], [onerror], b[onclick]"

test("hostile output is shown letter by letter in every part of the view", async () => {
  const page = await show(told.runs.hostile)
  const inert = () =>
    assert.deepEqual(
      page.all(TAGS).map((each) => each.outerHTML),
      [],
    )
  assert.match(page.text(".bar"), /Title <script>/)
  for (const tab of ["Output", "What it saw", "Messages", "Cost"]) {
    await page.tab(tab, ".inspector")
    inert()
  }
  await page.click(".plan-button")
  for (const tab of ["Plan", "Prompt", "Cost"]) {
    await page.tab(tab, ".inspector")
    inert()
  }
  const prose = page.text('.pane[data-step="0"] .prose')
  for (const written of [
    "<script>window.pwned = 1</script>",
    "⟨U+001B⟩[31mred",
    "⟨U+202E⟩gnp.exe",
    "hidden⟨U+E0041⟩tag",
  ])
    assert.ok(prose.includes(written), written)
  const links = page.all(".prose a")
  assert.deepEqual(
    new Set(links.map(({ href }) => href)),
    new Set(["https://evil.example/pixel.png?secret=1", "https://example.org/x"]),
  )
  assert.deepEqual(new Set(links.map(({ rel }) => rel)), new Set(["noopener noreferrer nofollow"]))
  assert.equal(window.pwned, undefined)
})
