// Where the ring is, and how a line leads to it from the strip: through the gaps of the page, over nothing that it shows.

// Around a card the ring takes the place of its border; around a part of one it keeps off the text.
const AROUND_CARD = 2
const AROUND_PART = 7
// A gap between two cards is twice as wide.
const HALF_GAP = 5
const CORNER = 7
// How far from the beginning of a ring a short line comes to it.
const IN = 36

const right = (box) => box.left + box.width
const bottom = (box) => box.top + box.height

// Returns the ring around `target`, a part of `card` or the card itself, as far as it is shown.
export function ringOf(target, card) {
  const same = target.left === card.left && target.top === card.top && target.width === card.width
  const by = same ? AROUND_CARD : AROUND_PART
  const [left, top] = [target.left - by, target.top - by]
  const [end, foot] = [right(target) + by, bottom(target) + by]
  if (same) return { left, top, width: end - left, height: foot - top }
  const within = { left: Math.max(left, card.left + 2), top: Math.max(top, card.top + 2) }
  const [width, height] = [Math.min(end, right(card) - 2) - within.left, Math.min(foot, bottom(card) - 2) - within.top]
  return { ...within, width: Math.max(0, width), height: Math.max(0, height) }
}

// Returns {path, end}: from the strip to the ring. What is beside the strip is reached at once, all else by the gap
// beside its card.
export function lineTo(ring, card, strip) {
  const across = clamp(ring.left + IN, strip.left + IN, right(strip) - IN)
  if (bottom(ring) <= strip.top) return straight(across, strip.top, bottom(ring))
  if (ring.top < bottom(strip)) return null
  const next = ring.top - bottom(strip) <= 4 * HALF_GAP
  if (next) return straight(across, bottom(strip), ring.top)
  const y = ring.top + ring.height / 2
  const gaps = [
    { x: card.left - HALF_GAP, to: ring.left },
    { x: right(card) + HALF_GAP, to: right(ring) },
  ]
  const below = gaps.find(({ x }) => x > strip.left && x < right(strip))
  if (below) return bent(`M${below.x} ${bottom(strip)}`, below, y)
  // The gap is beside the strip, too, and the line begins at its side.
  const begin = strip.top + strip.height / 2
  const side = gaps[0].x + CORNER
  const start = `M${strip.left} ${begin} H${side} Q${gaps[0].x} ${begin} ${gaps[0].x} ${begin + CORNER}`
  return bent(start, gaps[0], Math.min(y, ring.top + IN))
}

const straight = (x, from, to) => ({ path: `M${x} ${from} V${to}`, end: { x, y: to } })

function bent(begin, { x, to }, y) {
  const turn = Math.sign(to - x) * Math.min(CORNER, Math.abs(to - x))
  return { path: `${begin} V${y - CORNER} Q${x} ${y} ${x + turn} ${y} H${to}`, end: { x: to, y } }
}

const clamp = (value, least, most) => Math.max(least, Math.min(value, most))
