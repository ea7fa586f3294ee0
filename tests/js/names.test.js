import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { apart } = await live("format.js")

test("a name from the right is put apart from the line around it, all others stay as they are", () => {
  assert.equal(`from 0 · ${apart("כותב")} · 3 tokens`, "from 0 · \u2068כותב\u2069 · 3 tokens")
  assert.equal(apart("model-7 عربي"), "\u2068model-7 عربي\u2069")
  assert.equal(apart("writer"), "writer")
})
