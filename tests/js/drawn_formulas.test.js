// Formulas as models write them, drawn by KaTeX; and what is none.

import assert from "node:assert/strict"
import { test } from "node:test"

import { becomes, show, told } from "./page.js"

const { runs, parts } = told
const sources = (page) => page.all(".inspector .formula").map((each) => each.dataset.source)

async function output(run) {
  const page = await show(run)
  await page.tab("Output", ".inspector")
  return page
}

test("what is a formula", async () => {
  const page = await output(runs["what is a formula"])
  await becomes(() => page.all(".inspector .prose .formula .katex").length === parts.length)
  assert.deepEqual(sources(page), parts)
  for (const plain of ["It costs $5 and $10, or US$7", "echo $HOME $PATH \\(a\\)"])
    assert.ok(page.text(".inspector .prose").includes(plain))
})

test("the answer keeps a formula's meaning", async () => {
  let page = await show(runs.boxed)
  await becomes(() => page.find(".conclusion .katex"))
  assert.equal(page.text(".conclusion annotation"), "\\frac{1}{x+1}")
  page = await show(runs["boxed nonsense"])
  assert.equal(page.text(".conclusion"), "\\notacommand{1}²")
})
