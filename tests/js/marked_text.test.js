import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { marked } = await live("marked_text.js")
// Readable signs for the characters of private use that stand around what differs.
const seen = (pieces) =>
  marked(pieces, (text) => text)
    .replaceAll("\ue000", "[-")
    .replaceAll("\ue001", "[+")
    .replaceAll("\ue002", "[.")
    .replaceAll("\ue003", "]")

test("a mark stands inside of what makes a line a heading, an item or a row of a table", () => {
  const pieces = [
    ["same", "## Sum\n"],
    ["removed", "- 4 euros\n- more\n"],
    ["added", "1. 5 euros\n| a | 5 |\n"],
  ]
  assert.equal(seen(pieces), "## Sum\n- [-4 euros]\n- [-more]\n1. [+5 euros]\n| [+a | 5 |]\n")
})

test("within a line all of it is marked, also what looks like the start of one", () => {
  assert.equal(seen([["same", "a "], ["removed", "- b"], ["added", "# c\n"]]), "a [-- b][+# c]\n") // prettier-ignore
})

test("fences and the line below the head of a table stay as they are", () => {
  assert.equal(seen([["added", "```js\nx\n```\n|---|:-:|\n"]]), "```js\n[+x]\n```\n|---|:-:|\n")
})

test("a text cannot bring marks of its own, and says how much is left out", () => {
  assert.equal(seen([["same", "a\ue000b\ue003"]]), "a\ufffdb\ufffd")
  assert.equal(seen([["same", "a"], ["skipped", "", 40, "same"]]), "a [.… 40 words the same …] ") // prettier-ignore
})
