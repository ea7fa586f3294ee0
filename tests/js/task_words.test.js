import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { withoutTask } = await live("task_words.js")

for (const [told, shown] of [
  ["Break the journey into parts: {question}", "Break the journey into parts"],
  ["State your answer again. The task: {question}", "State your answer again."],
  ["Plan how to solve this.\n\nTask: {question}\n", "Plan how to solve this."],
  ["Solve {question} in two ways", "Solve the task in two ways"],
  ["{question}", "the task"],
  ["{question} Answer in one word.", "the task Answer in one word."],
  ["Nothing of it here.", "Nothing of it here."],
]) {
  test(`a node says "${shown}" for ${JSON.stringify(told)}`, () => assert.equal(withoutTask(told), shown))
}
