import assert from "node:assert/strict"
import { test } from "node:test"

import { tour } from "./assets.js"

const { inTheWay, place } = await tour("place.js")

const CARD = { width: 372, height: 190 }
const ROOM = { width: 1280, height: 720 }
const EVERYTHING = { left: 0, top: 0, width: 1280, height: 720 }

const apart = (target, card) =>
  card.left + CARD.width <= target.left ||
  card.left >= target.left + target.width ||
  card.top + CARD.height <= target.top ||
  card.top >= target.top + target.height

const inside = ({ left, top }) =>
  left >= 0 && top >= 0 && left + CARD.width <= ROOM.width && top + CARD.height <= ROOM.height

test("the card stands whole in the window and covers no part of what it explains where there is room", () => {
  for (let left = 0; left <= 1200; left += 40) {
    for (let top = 0; top <= 680; top += 40) {
      for (const [width, height] of [
        [80, 40],
        [840, 66],
        [300, 600],
        [780, 460],
      ]) {
        const target = { left, top, width: Math.min(width, 1280 - left), height: Math.min(height, 720 - top) }
        const room =
          Math.max(target.left, 1280 - target.left - target.width) >= CARD.width + 26 ||
          Math.max(target.top, 720 - target.top - target.height) >= CARD.height + 26
        const card = place(target, CARD, ROOM)
        assert.ok(inside(card), JSON.stringify({ target, card }))
        if (room) assert.ok(apart(target, card), JSON.stringify({ target, card }))
      }
    }
  }
})

test("without anything to point at, and over everything, the card is in the window", () => {
  assert.ok(inside(place(null, CARD, ROOM)))
  assert.ok(inside(place(EVERYTHING, CARD, ROOM)))
  assert.deepEqual(place(null, CARD, { width: 300, height: 150 }), { left: 12, top: 12 })
})

test("what the card would cover is brought to the end of the window, where both have room", () => {
  const map = { left: 95, width: 833, height: 420 }
  assert.ok(inTheWay({ ...map, top: 150 }, CARD, ROOM))
  const end = { ...map, top: 720 - 420 }
  assert.ok(!inTheWay(end, CARD, ROOM))
  assert.ok(apart(end, place(end, CARD, ROOM)))
  // Nothing helps what fills the window, and nothing lies over what has room beside it.
  assert.ok(!inTheWay({ ...map, top: 0, height: 600 }, CARD, ROOM))
  assert.ok(!inTheWay({ left: 0, width: 800, top: 150, height: 420 }, CARD, ROOM))
})
