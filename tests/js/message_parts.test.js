import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { contentTokens, imagesIn, inWords } = await live("message_parts.js")

const SHA256 = "ab".repeat(32)
const image = { kind: "image", media_type: "image/png", width: 640, height: 480, size_bytes: 9000, sha256: SHA256 }

test("a content of text is itself, and one of parts is described as on the command line", () => {
  assert.equal(inWords("Hello"), "Hello")
  const content = [
    image,
    { kind: "text", text: "What is it?" },
    { kind: "tool_call", call_id: "c1", name: "look", arguments: '{"at":1}' },
    { kind: "tool_result", call_id: "c1", text: "a cat", is_error: false },
    { kind: "tool_result", call_id: "c2", text: "no such tool", is_error: true },
  ]
  assert.equal(
    inWords(content),
    [
      "[image: PNG, 640 x 480 pixels, sha256 abababababab]",
      "What is it?",
      '[tool call c1: look({"at":1})]',
      "[result of tool call c1: a cat]",
      "[error of tool call c2: no such tool]",
    ].join("\n\n"),
  )
  assert.deepEqual(imagesIn(content), [image])
})

test("an image counts by its pixels, up to a limit", () => {
  assert.equal(contentTokens("Look"), 1)
  assert.equal(contentTokens([image]), 410)
  assert.equal(
    contentTokens([
      { ...image, width: 2048, height: 2048 },
      { kind: "text", text: "Look" },
    ]),
    1601,
  )
})
