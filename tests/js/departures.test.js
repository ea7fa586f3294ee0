import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { departureLines } = await live("departures.js")

test("each departure of a call is one line, and what a server wrote is inert in it", () => {
  const told = departureLines(
    {
      departures: [
        { kind: "left_out", what: "seed", text: "" },
        { kind: "renamed", what: "max_tokens", text: "max_completion_tokens" },
        { kind: "system_in_user", what: "system", text: "" },
        { kind: "turn_token", what: "<|im_end|>", text: "\nmore" },
        { kind: "lone_close", what: "</think>", text: "" },
        { kind: "unknown_field", what: "a\u202eb", text: "x" },
      ],
    },
    (text) => text.replace("\u202e", "?"),
  )
  assert.equal(told.length, 6)
  assert.match(told[0].text, /refuses seed/)
  assert.match(told[3].text, /<\|im_end\|>; 5 characters after it are in the record/)
  assert.ok(!told[5].text.includes("\u202e"))
  assert.deepEqual(departureLines({}, String), [])
})
