import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { StoryClock, minutes } = await live("story_clock.js")

test("the second run begins only after the first one's answer and the change were shown", () => {
  const clock = new StoryClock([9000, 4000])
  assert.deepEqual(clock.at(5000), { beat: 1, moments: [5000, null], ended: [false, false] })
  assert.deepEqual(clock.at(9000), { beat: 1, moments: [9000, null], ended: [true, false] })
  assert.deepEqual(clock.at(clock.changeAt), { beat: 2, moments: [9000, null], ended: [true, false] })
  assert.deepEqual(clock.at(clock.secondAt + 1000), { beat: 3, moments: [9000, 1000], ended: [true, false] })
  assert.deepEqual(clock.at(1e9), { beat: 3, moments: [9000, 4000], ended: [true, true] })
})

test("a moment is told in minutes and seconds", () => {
  assert.deepEqual([0, 8999, 61_000].map(minutes), ["0:00", "0:08", "1:01"])
})
