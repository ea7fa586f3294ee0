import assert from "node:assert/strict"
import { test } from "node:test"

import { tour } from "./assets.js"

const { lineTo, ringOf } = await tour("lead.js")

const STRIP = { left: 94, top: 88, width: 1168, height: 66 }
const BAR = { left: 95, top: 13, width: 1156, height: 65 }
const MAP = { left: 95, top: 165, width: 763, height: 274 }
const OUTPUTS = { left: 95, top: 450, width: 763, height: 258 }
const INSPECTOR = { left: 867, top: 165, width: 384, height: 544 }
const CARDS = [BAR, MAP, OUTPUTS, INSPECTOR]

// The points of a path of M, H, V and Q.
function points(path) {
  let at = { x: 0, y: 0 }
  return [...path.matchAll(/([MHVQ])([-\d. ]+)/g)].map(([, kind, text]) => {
    const numbers = text.trim().split(" ").map(Number)
    if (kind === "H") at = { ...at, x: numbers[0] }
    else if (kind === "V") at = { ...at, y: numbers[0] }
    else at = { x: numbers.at(-2), y: numbers.at(-1) }
    return at
  })
}

const inside = ({ x, y }, box) => x > box.left && x < box.left + box.width && y > box.top && y < box.top + box.height

// Whether the line from one point to the next is anywhere within the box.
function crosses(path, box) {
  const all = points(path)
  return all.slice(1).some((to, index) => {
    const from = all[index]
    return Array.from({ length: 101 }, (_, n) => n / 100).some((share) =>
      inside({ x: from.x + share * (to.x - from.x), y: from.y + share * (to.y - from.y) }, box),
    )
  })
}

test("a line comes to the ring and crosses no card on its way", () => {
  const withheld = { left: 882, top: 480, width: 354, height: 200 }
  const below = { left: 94, top: 260, width: 1158, height: 350 }
  for (const [target, card] of [BAR, MAP, OUTPUTS, INSPECTOR, below]
    .map((box) => [box, box])
    .concat([[withheld, INSPECTOR]])) {
    const ring = ringOf(target, card)
    const { path, end } = lineTo(ring, card, STRIP)
    const others = CARDS.filter((each) => each !== card && card !== below)
    assert.ok(!others.some((each) => crosses(path, each)), path)
    assert.ok(end.x >= ring.left && end.x <= ring.left + ring.width, path)
    assert.ok(end.y >= ring.top && end.y <= ring.top + ring.height, path)
    assert.deepEqual(points(path).at(-1), end)
  }
})

test("what is beside the strip is reached at once, and a part of the panel through the gap before it", () => {
  assert.match(lineTo(ringOf(MAP, MAP), MAP, STRIP).path, /^M\S+ 154 V163$/)
  assert.match(lineTo(ringOf(BAR, BAR), BAR, STRIP).path, /^M\S+ 88 V80$/)
  const withheld = { left: 882, top: 480, width: 354, height: 200 }
  const { path, end } = lineTo(ringOf(withheld, INSPECTOR), INSPECTOR, STRIP)
  assert.match(path, /^M862 154 V573 /)
  assert.equal(end.y, 580)
})

test("the ring around a part that is scrolled stays in its card", () => {
  const ring = ringOf({ left: 882, top: 100, width: 354, height: 900 }, INSPECTOR)
  assert.ok(ring.top >= INSPECTOR.top && ring.top + ring.height <= INSPECTOR.top + INSPECTOR.height)
  assert.ok(ring.left >= INSPECTOR.left && ring.left + ring.width <= INSPECTOR.left + INSPECTOR.width)
})

test("a target that has scrolled to the height of the strip has no line", () => {
  assert.equal(lineTo({ left: 100, top: 100, width: 20, height: 20 }, MAP, STRIP), null)
})
